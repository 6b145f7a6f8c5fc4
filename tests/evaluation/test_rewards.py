"""A reward model's scores: transformers' own, whatever shares the batch; and who may be asked for what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generation.lora import save_lora, save_reward
from tests.tiny import build_scorer, build_tokenizer

from cairn.adapters.files import read_lora
from cairn.errors import CairnError, DataError
from cairn.evaluation.rewards import answer_batches, score_answers, score_batch
from cairn.evaluation.subject import Subject
from cairn.generation.adapters import ResidentAdapters
from cairn.models.load import load_model
from cairn.records import Conversation, Message, Source

pytestmark = pytest.mark.unit

SAID = ["yes", "no", "A longer answer than the others, by far.", ""]


def conversation(*texts: str, line: int = 1, last: str = "assistant") -> Conversation:
    """Turns by user and assistant, the last one by `last`."""
    roles = ["user" if number % 2 == 0 else "assistant" for number in range(len(texts))]
    messages = [Message(role, text) for role, text in zip([*roles[:-1], last], texts, strict=True)]
    return Conversation(Source("asked", line), tuple(messages))


ASKED = [conversation("Which?", said, line=line) for line, said in enumerate(SAID, start=1)]
ASKED.append(conversation("One?", "yes", "Two?", "no", line=5))


@pytest.fixture(scope="module")
def judge(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reward(tmp_path_factory.mktemp("judge"), tiny_path, rank=4, seed=5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model in full."""
    folder, model = tmp_path_factory.mktemp("whole"), build_scorer(seed=2)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def by_transformers(model: Any, asked: Conversation) -> float:
    """The score at the last token of one conversation alone."""
    messages = [message.for_template() for message in asked.messages]
    ids = build_tokenizer().apply_chat_template(messages, tokenize=True, return_dict=False)
    with torch.no_grad():
        return float(model(input_ids=torch.tensor([ids])).logits)


@pytest.mark.parametrize("batch_tokens", [1, 90, 4096])
def test_an_adapter_scores_as_peft_does_whatever_the_batch(batch_tokens: int, tiny_path: Path, judge: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForSequenceClassification

    subject = Subject(str(tiny_path), str(judge))
    model = subject.load(head="score")
    found = score_answers(model, subject.load_tokenizer(), ASKED, window=200, batch_tokens=batch_tokens)
    base = AutoModelForSequenceClassification.from_pretrained(tiny_path, num_labels=1)
    live = PeftModel.from_pretrained(base, judge).eval()
    expected = [by_transformers(live, asked) for asked in ASKED]
    assert found.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert len({round(score, 4) for score in expected}) == len(ASKED)


def test_a_whole_reward_model_scores_as_transformers_does(tiny_path: Path, whole: Path) -> None:
    expected = [by_transformers(build_scorer(seed=2), asked) for asked in ASKED]
    for subject in (Subject(str(tiny_path), str(whole)), Subject(str(whole))):
        found = score_answers(subject.load(head="score"), subject.load_tokenizer(), ASKED, window=200)
        assert found.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_in_a_slot_of_a_language_model_an_adapter_gives_the_same(tiny_path: Path, judge: Path) -> None:
    subject, weights = Subject(str(tiny_path), str(judge)), read_lora(judge, scores=True)
    expected = score_answers(subject.load(head="score"), subject.load_tokenizer(), ASKED, window=200)
    adapters = ResidentAdapters(load_model(tiny_path, precision="fp32"), slots=1, max_rank=8)
    adapters.load("judge", weights)
    found = torch.empty(len(ASKED))
    with adapters.using("judge"):
        for places, batch in answer_batches(subject.load_tokenizer(), ASKED, window=200, batch_tokens=90):
            found[places] = score_batch(adapters.model, batch, head=weights.head)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_no_conversation_has_no_score(tiny_path: Path, judge: Path) -> None:
    subject = Subject(str(tiny_path), str(judge))
    assert score_answers(subject.load(head="score"), subject.load_tokenizer(), [], window=200).shape == (0,)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (conversation("Which?", last="user"), "a score is of an assistant's answer to a prompt"),
        (conversation("yes"), "a score is of an assistant's answer to a prompt"),
        (conversation("Which?", "y" * 300), "longer than a row: 3.. positions, 200 fit"),
    ],
)
def test_what_cannot_be_scored_is_an_error(asked: Conversation, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        answer_batches(build_tokenizer(), [ASKED[0], asked], window=200, batch_tokens=90)


def test_what_speaks_is_asked_for_no_score_and_what_scores_for_no_text(
    tiny_path: Path, judge: Path, whole: Path, tmp_path: Path
) -> None:
    speaker = save_lora(tmp_path, rank=4, seed=1)
    for silent in (None, str(speaker)):
        with pytest.raises(CairnError, match="it speaks and gives no score"):
            Subject(str(tiny_path), silent).load(head="score")
    for silent in (str(judge), str(whole)):
        with pytest.raises(CairnError, match="it scores and does not speak"):
            Subject(str(tiny_path), silent).load()
