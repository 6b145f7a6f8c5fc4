"""`cairn serve`: the OpenAI-compatible service over one base model and every adapter in the store."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from cairn.cli.arguments import StoragePath, storage_folder

NAME = "serve"


def command(
    model: Annotated[str, typer.Option(help="The base model: a directory, a hub name, or a GGUF file.")],
    storage: StoragePath = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8000,
    replicas: Annotated[int, typer.Option(min=1, help="Copies of the model.")] = 1,
    cpus: Annotated[float, typer.Option(min=0.1, help="CPUs, and so compute threads, of a replica.")] = 1.0,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs of a replica.")] = 0.0,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    router: Annotated[str | None, typer.Option(help="A published router, which then answers to 'auto'.")] = None,
    evaluation: Annotated[bool, typer.Option("--evaluation", help="Also serve /v1/bits-per-byte.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Also serve the dashboard.")] = False,
) -> None:
    """Serve the base model and all published adapters until interrupted; CAIRN_API_KEY sets a key."""
    from cairn.cli.terminal import say
    from cairn.cluster.session import connected

    folder = str(storage_folder(storage))
    settings = {
        "model": _local(model),
        "storage": folder,
        "precision": precision,
        "replicas": replicas,
        "cpus_per_replica": cpus,
        "gpus_per_replica": gpus,
        "api_key": os.environ.get("CAIRN_API_KEY"),  # read here: a replica on another host has other variables
    }
    routed = {**settings, "router": router}
    with connected(replicas * cpus * (1 + evaluation)):
        from cairn.serving.deploy import serve_applications
        from cairn.serving.settings import EvaluationSettings, InferenceSettings

        serving = serve_applications(
            InferenceSettings.read(routed),
            evaluation=EvaluationSettings.read(settings) if evaluation else None,
            dashboard_storage=folder if dashboard else None,
            host=host,
            port=port,
        )
        for name, url in serving.applications.items():
            say(f"{name}: {url}")
        try:
            _until_stopped()
        finally:
            serving.stop()


def _local(model: str) -> str:
    """A directory's absolute path, since replicas run elsewhere; another name as it is."""
    path = Path(model).expanduser()
    return str(path.resolve()) if path.exists() else model


def _until_stopped() -> None:
    """Wait for Ctrl-C or a SIGTERM, which ends this like a Ctrl-C would."""
    stopped = threading.Event()

    def stop(*_: Any) -> None:
        stopped.set()

    before = {name: signal.signal(name, stop) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        stopped.wait()
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
