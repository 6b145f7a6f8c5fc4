"""Bits per byte over HTTP equal what the library says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.generation.lora import peft_model
from tests.serving.conftest import Service
from tests.tiny import build_model, build_tokenizer

from cairn.evaluation.bits_per_byte import bits_per_byte, score_documents
from cairn.records import Document, Source

pytestmark = pytest.mark.ray

TEXTS = ["Some text, naïve.", "Another, and longer one. " * 20]


def ask(service: Service, **body: Any) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/bits-per-byte", json=body, timeout=60)


def expected(texts: list[str], folder: Path | None, *, window: int = 128) -> float:
    model = build_model() if folder is None else peft_model(folder)
    documents = [Document(Source("texts", i), text) for i, text in enumerate(texts, start=1)]
    return bits_per_byte(score_documents(model, build_tokenizer(), documents, window=window))


@pytest.mark.parametrize(
    ("model", "folder", "label"),
    [("tiny", None, "tiny"), ("support", "large", "support@2"), ("support@prod", "small", "support@1")],
)
def test_texts(service: Service, model: str, folder: str | None, label: str) -> None:
    answer = ask(service, texts=TEXTS, model=model).json()
    assert answer["model"] == label
    wanted = expected(TEXTS, service.folders[folder] if folder else None)
    assert answer["bits_per_byte"]["micro"] == pytest.approx(wanted, rel=1e-5)
    assert answer["bytes"] == sum(len(text.encode()) for text in TEXTS)
    assert [score["bytes"] for score in answer["scores"]] == [len(text.encode()) for text in TEXTS]
    assert sum(score["nats"] for score in answer["scores"]) == pytest.approx(answer["nats"])


def test_the_window_counts(service: Service) -> None:
    answer = ask(service, texts=TEXTS, window=16).json()
    assert answer["settings"] == {"window": 16}
    assert answer["bits_per_byte"]["micro"] == pytest.approx(expected(TEXTS, None, window=16), rel=1e-5)
    assert answer["bits_per_byte"]["micro"] != pytest.approx(expected(TEXTS, None), rel=1e-5)


def test_a_file_under_an_allowed_root(service: Service) -> None:
    answer = ask(service, path=str(service.data / "test.jsonl.zst"), limit=7, model="legal").json()
    assert answer["documents"] == 7
    assert list(answer["bits_per_byte"]["per_subset"]) == ["Github"]
    texts = [f"Document {i}: naïve." for i in range(7)]
    assert answer["bits_per_byte"]["micro"] == pytest.approx(expected(texts, service.folders["rslora"]), rel=1e-5)
    assert "scores" not in answer


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"path": "/etc/passwd"}, 403, "path"),
        ({"path": "{data}/../../etc/passwd"}, 403, "path"),
        ({"path": "{data}/link"}, 403, "path"),
        ({"path": "{data}/linked"}, 403, "path"),
        ({"path": "tree:{data}"}, 403, "path"),
        ({"path": "{data}/missing.jsonl"}, 400, None),
        ({"texts": ["a"], "path": "{data}/test.jsonl.zst"}, 400, "texts"),
        ({}, 400, "texts"),
        ({"texts": [1]}, 400, "texts"),
        ({"texts": ["a"], "window": 1}, 400, "window"),
        ({"texts": ["a"], "window": 100000}, 400, "window"),
        ({"texts": [""]}, 400, None),
        ({"texts": ["a"], "model": "nobody"}, 404, "model"),
        ({"texts": ["a"], "model": "foreign"}, 400, "model"),
        ({"texts": ["a"], "colour": 1}, 400, "colour"),
    ],
)
def test_what_is_refused(service: Service, body: dict[str, Any], status: int, param: str | None) -> None:
    link = service.data / "link"
    if not link.exists():
        link.symlink_to("/etc/hostname")
        (service.data / "linked").mkdir()
        (service.data / "linked" / "a.txt").symlink_to("/etc/hostname")
    if "path" in body:
        body = {**body, "path": body["path"].format(data=service.data)}
    answer = ask(service, **body)
    error = answer.json()["error"]
    assert answer.status_code == status, error
    assert error["message"]
    assert param is None or error["param"] == param


def test_a_lone_surrogate_is_no_text(service: Service) -> None:
    answer = httpx.post(f"{service.url}/v1/bits-per-byte", content=b'{"texts": ["\\ud800"]}')
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "texts")
