"""`cairn serve`: the OpenAI-compatible service over one base model and every adapter in the store."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

NAME = "serve"


def command(
    model: Annotated[str, typer.Option(help="The base model: a directory, a hub name, or a GGUF file.")],
    storage: StoragePath = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8000,
    replicas: Annotated[int, typer.Option(min=1, help="Copies of the model.")] = 1,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "bf16",
    api_key: Annotated[
        str | None, typer.Option(envvar="CAIRN_API_KEY", show_envvar=True, help="The key clients must send.")
    ] = None,
) -> None:
    """Serve the base model and all published adapters until interrupted."""
    from cairn.cluster.session import connected

    with connected():
        from cairn.serving.deploy import serve_applications

        serve_applications(
            model=model,
            storage=str(storage_folder(storage)),
            host=host,
            port=port,
            replicas=replicas,
            precision=precision,
            api_key=api_key,
            blocking=True,
        )
