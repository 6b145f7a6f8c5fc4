"""`cairn dashboard`: runs, searches and adapters of a storage folder in a browser; needs no cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

NAME = "dashboard"


def command(
    storage: StoragePath = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8080,
) -> None:
    """Show the runs, searches and adapters of a storage folder in a browser."""
    import uvicorn

    from cairn.cli.terminal import say
    from cairn.serving.dashboard.app import build_app

    application = build_app(storage_folder(storage))
    say(f"dashboard: http://{host}:{port}")
    uvicorn.run(application, host=host, port=port, log_level="warning")
