"""The dashboard over HTTP: one self-contained page and the JSON behind it.

A content security policy forbids it to load or call anything but this service, so it works on a cluster without
internet. FastAPI's own documentation pages load from elsewhere and are off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse

from cairn.errors import UserError
from cairn.serving.dashboard import readings
from cairn.serving.dashboard.pages import assembled

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def build_app(storage: str | Path) -> FastAPI:
    """The application over a storage path, which need not exist yet."""
    root = Path(storage)
    app = FastAPI(title="Cairn dashboard", docs_url=None, redoc_url=None, openapi_url=None)
    document = assembled("page.html")

    @app.get("/", response_class=HTMLResponse)
    def show_page() -> HTMLResponse:
        return HTMLResponse(document, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"})

    @app.get("/api/overview")
    def show_overview() -> dict[str, Any]:
        return readings.overview(root)

    @app.get("/api/runs/{name}")
    def show_run(name: str) -> dict[str, Any]:
        return readings.run_detail(root, name)

    @app.get("/api/searches/{name}")
    def show_search(name: str) -> dict[str, Any]:
        return readings.search_detail(root, name)

    @app.exception_handler(UserError)
    def refuse(request: Request, error: UserError) -> JSONResponse:
        return JSONResponse({"error": error.what, "next_step": error.next_step}, status_code=404)

    return app
