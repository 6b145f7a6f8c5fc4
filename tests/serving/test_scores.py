"""`POST /v1/score`: what the library gives, beside adapters that speak, and clear words where there is no score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serving.conftest import Service
from tests.tiny import build_tokenizer

from cairn.evaluation.rewards import score_answers
from cairn.evaluation.subject import Subject
from cairn.records import Conversation, Message, Source

pytestmark = pytest.mark.ray

SHORT = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "This one."}]
LONG = [*SHORT, {"role": "user", "content": "And then?"}, {"role": "assistant", "content": "That one. " * 12}]


def ask(service: Service, **body: Any) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/score", json={"model": "judge", **body}, timeout=60)


def expected(service: Service, tiny: Path, *conversations: list[dict[str, str]]) -> list[float]:
    subject = Subject(str(tiny), str(service.folders["judge"]))
    asked = [Conversation(Source("", 1), tuple(Message(**message) for message in said)) for said in conversations]
    scores = score_answers(subject.load(head="score"), subject.load_tokenizer(), asked, window=512)
    return [float(score) for score in scores]


def test_scores_are_those_of_the_library(service: Service, tiny_path: Path) -> None:
    answer = ask(service, conversations=[SHORT, LONG, SHORT]).json()
    assert (answer["object"], answer["model"]) == ("scores", "judge@1")
    short, long = expected(service, tiny_path, SHORT, LONG)
    assert answer["scores"] == pytest.approx([short, long, short], rel=1e-4, abs=1e-5)
    assert abs(short - long) > 1e-3
    read = [build_tokenizer().apply_chat_template(said, return_dict=False) for said in (SHORT, LONG, SHORT)]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, read))
    one = ask(service, model="judge@1", messages=SHORT).json()
    assert one["scores"] == pytest.approx([short], rel=1e-4, abs=1e-5)


def test_no_text_of_what_scores_and_no_score_of_what_speaks(service: Service) -> None:
    for path, body in (
        ("chat/completions", {"messages": SHORT[:1]}),
        ("completions", {"prompt": "a"}),
        ("bits-per-byte", {"texts": ["a"]}),
    ):
        answer = httpx.post(f"{service.url}/v1/{path}", json={"model": "judge", **body}, timeout=60)
        assert answer.status_code == 400
        assert "it scores and does not speak" in answer.json()["error"]["message"]
    for model in ("support", "tiny"):
        answer = ask(service, model=model, messages=SHORT)
        assert answer.status_code == 400
        assert "it speaks and gives no score" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({}, 400, "either messages or conversations"),
        ({"messages": SHORT, "conversations": [SHORT]}, 400, "either messages or conversations"),
        ({"messages": SHORT[:1]}, 400, "an assistant's answer to a prompt"),
        ({"messages": []}, 400, "an assistant's answer to a prompt"),
        ({"messages": [SHORT[0], {"role": "assistant", "content": "y" * 600}]}, 400, "longer than a row"),
        ({"messages": SHORT, "model": "nobody"}, 404, "does not exist"),
        ({"messages": SHORT, "temperature": 1}, 400, "there is no such field"),
        ({"conversations": [SHORT] * 129}, 400, "at most 128 items"),
    ],
)
def test_what_is_refused(service: Service, body: dict[str, Any], status: int, reason: str) -> None:
    answer = ask(service, **body)
    assert (answer.status_code, reason in answer.json()["error"]["message"]) == (status, True), answer.text


def test_nothing_asked_is_nothing_given(service: Service) -> None:
    assert ask(service, conversations=[]).json()["scores"] == []
