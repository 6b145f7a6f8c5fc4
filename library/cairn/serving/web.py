"""What every service's web application shares: bodies read as JSON, and every error in OpenAI's shape."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from cairn.serving.refusal import Refusal, RefusedError, bad_request


async def read_json(request: Request) -> Any:
    """The body; a 400 when it is not JSON."""
    try:
        return json.loads(await request.body())
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None


def add_error_shapes(app: FastAPI) -> FastAPI:
    """Refusals, unknown routes and wrong methods answer with {"error": …}."""
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(HTTPException, _not_served)
    return app


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RefusedError)
    headers = {"WWW-Authenticate": "Bearer"} if error.refusal.status == 401 else None
    return JSONResponse(error.refusal.body(), status_code=error.refusal.status, headers=headers)


async def _not_served(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    return JSONResponse(refusal.body(), status_code=error.status_code, headers=error.headers)


class ExactPrefix:
    """Serve routes a whole prefix to an application; a request for the prefix itself is its root, without a redirect."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and scope["path"] == scope.get("root_path"):
            scope = {**scope, "path": f"{scope['path']}/"}
        await self.app(scope, receive, send)
