"""A real service on a real Serve: tiny model, two published adapters, one of them in two versions with an alias, and a router."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.generation.lora import save_lora, save_reward


@dataclass(frozen=True)
class Service:
    """Where it answers, and the folders behind it."""

    url: str
    storage: Path
    folders: dict[str, Path]
    data: Path

    def client(self, **settings: Any) -> Any:
        """The official client."""
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, **settings)


ROUTED = {"support": "words", "legal": "numbers"}
"""Adapter → the kind of prompts (`tests.training.routed`) that the router sends to it."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def publish(storage: Path, tiny: Path, folders: dict[str, Path]) -> None:
    """support@1, support@2 (alias prod → 1), legal@1 and judge@1, which scores, made for the tiny base."""
    from cairn.models.identity import base_sha256, tokenizer_sha256
    from cairn.models.load import load_tokenizer
    from cairn.store.card import Base, Facts
    from cairn.store.store import Store

    store = Store(storage / "adapters")
    identity = {"tokenizer_sha256": tokenizer_sha256(load_tokenizer(tiny)), "method": "lora"}
    ours = Facts(base=Base(path=str(tiny), sha256=base_sha256(tiny)), **identity)
    foreign = Facts(base=Base(path="elsewhere", sha256="0" * 64), **identity)
    for name, folder, facts in (
        ("support", "small", ours),
        ("support", "large", ours),
        ("legal", "rslora", ours),
        ("judge", "judge", ours),
        ("foreign", "small", foreign),
    ):
        store.publish(name, folders[folder], facts)
    store.promote("support", 1, "prod")
    publish_router(storage)


def publish_router(storage: Path) -> None:
    """front@1: random words go to support@2, numbers to legal@1."""
    from tests.training.routed import write_questions

    from cairn.training.router import Settings, train_router

    files = {name: write_questions(storage / f"{kind}.jsonl", kind, 60) for name, kind in ROUTED.items()}
    data = tuple(f"{name}={file}" for name, file in files.items())
    train_router(tuple(ROUTED), storage, Settings(data=data)).publish("front", storage)


@pytest.fixture(scope="session")
def folders(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adapter directories by name."""
    root = tmp_path_factory.mktemp("folders")
    return {
        "small": save_lora(root / "small", rank=4, seed=1),
        "large": save_lora(root / "large", rank=16, seed=2),
        "rslora": save_lora(root / "rslora", rank=8, seed=4, use_rslora=True),
        "judge": save_reward(root / "judge", tiny_path, rank=4, seed=5),
    }


@pytest.fixture(scope="package")
def service(
    ray_cluster: None, tiny_path: Path, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Inference and evaluation on one free port; ended with this folder's tests."""
    import zstandard

    from cairn.serving.deploy import serve_applications
    from cairn.serving.settings import EvaluationSettings, InferenceSettings

    storage = tmp_path_factory.mktemp("storage")
    publish(storage, tiny_path, folders)
    data = tmp_path_factory.mktemp("data")
    lines = "".join(f'{{"text": "Document {i}: naïve.", "meta": {{"pile_set_name": "Github"}}}}\n' for i in range(9))
    (data / "test.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    shared = {"model": str(tiny_path), "storage": str(storage), "name": "tiny", "cpus_per_replica": 0.5}
    roots = [str(folder.parent) for folder in folders.values()][:1]
    running = serve_applications(
        InferenceSettings.read({**shared, "adapter_roots": roots, "adapter_slots": 3, "router": "front"}),
        evaluation=EvaluationSettings.read({**shared, "data_roots": [str(data)], "window": 128}),
        port=free_port(),
    )
    yield Service(running.url, storage, folders, data)
    running.stop()
