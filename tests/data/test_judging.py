"""Comparisons and judgements become samples whose answers are the template's own tokens, with the prompt kept once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.data.samples import assert_rows_equal
from tests.tiny import build_model, build_tokenizer

from cairn.data.batch import collate, taken_apart
from cairn.data.conversion import converted
from cairn.data.drops import CutReason, Dropped, DropReason
from cairn.data.encoding import Encoder
from cairn.data.judging import judged_samples
from cairn.data.packing import pack, row_of
from cairn.data.rows import Row, Sample
from cairn.data.shards import ShardWriter
from cairn.models.attention import forward_inputs, sees_prefixes
from cairn.records import Comparison, Conversation, Document, Judgement, Message, Source

pytestmark = pytest.mark.unit


def comparison(chosen: str, rejected: str, prompt: str = "Which?", line: int = 1, **given: object) -> Comparison:
    asked, better, worse = (
        (Message(role, text),) for role, text in (("user", prompt), ("assistant", chosen), ("assistant", rejected))
    )
    return Comparison(Source("pairs.jsonl", line), asked, better, worse, **given)  # type: ignore[arg-type]


def encoder(length: int = 200, truncation: str = "drop") -> Encoder:
    return Encoder(build_tokenizer(), length, truncation)  # type: ignore[arg-type]


def sample(record: Comparison | Judgement, using: Encoder | None = None) -> Sample:
    found = next(judged_samples(using or encoder(), [record]))
    assert isinstance(found, Sample), found
    return found


def rendered(prompt: str, answer: str) -> list[int]:
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    ids = build_tokenizer().apply_chat_template(messages, tokenize=True, return_dict=False)
    return [int(i) for i in ids]


class TestComparison:
    """A prompt and two branches."""

    def test_prompt_and_branch_are_the_template_s_own_tokens(self) -> None:
        found = sample(comparison("yes", "no way"))
        for branch, answer in zip(found.branches, ("yes", "no way"), strict=True):
            whole = [*found.tokens[:-1], *branch.tokens[:-1]]
            assert whole == rendered("Which?", answer)

    def test_the_prompt_weighs_nothing_and_an_answer_whole(self) -> None:
        found = sample(comparison("yes", "no way"))
        assert not found.weights.any()
        trained = [branch.tokens[1:][branch.weights > 0] for branch in found.branches]
        tokenizer = build_tokenizer()
        assert [tokenizer.decode(ids) for ids in trained] == ["yes<|im_end|>", "no way<|im_end|>"]

    def test_answers_that_begin_alike_are_trained_from_their_first_token(self) -> None:
        found = sample(comparison("same one", "same two"))
        assert [int((branch.weights > 0).sum()) for branch in found.branches] == [9, 9]

    def test_margin_and_weight_are_kept(self) -> None:
        found = sample(comparison("yes", "no", margin=0.5, weight=0.25))
        assert (found.margin, found.importance) == (0.5, 0.25)
        row = row_of([found])
        assert row.verdicts is not None
        assert row.verdicts.signs.tolist() == [0, 1, -1]
        assert row.verdicts.prefixes.tolist() == [0, 1, 1]
        assert row.verdicts.importances.tolist() == [0.25] * 3

    def test_answers_of_the_same_tokens_are_dropped(self) -> None:
        refused = next(judged_samples(encoder(), [comparison("yes", "yes")]))
        assert isinstance(refused, Dropped)
        assert refused.reason is DropReason.NO_PREFERENCE

    def test_a_prompt_too_long_is_dropped_or_cut_by_policy(self) -> None:
        long = comparison("yes", "no", prompt="z" + "a" * 99 + "?")
        refused = next(judged_samples(encoder(90), [long]))
        assert isinstance(refused, Dropped)
        assert refused.reason is DropReason.TOO_LONG
        cutting = encoder(90, "keep_end")
        found = sample(long, cutting)
        assert len(found) <= 90
        prompt = build_tokenizer().decode(found.tokens)
        assert prompt.endswith("?<|im_end|>\n<|im_start|>assistant\n")
        assert "z" not in prompt
        assert cutting.cuts == {CutReason.PROMPT_START: 1}

    def test_an_answer_is_never_cut(self) -> None:
        refused = next(judged_samples(encoder(90, "keep_end"), [comparison("y" * 80, "no")]))
        assert isinstance(refused, Dropped)
        assert refused.reason is DropReason.TOO_LONG


class TestJudgement:
    """A conversation with a verdict."""

    @pytest.mark.parametrize("good", [True, False])
    def test_tokens_and_sign(self, good: bool) -> None:
        record = Judgement(Source("f", 1), (Message("user", "Which?"),), (Message("assistant", "yes"),), good)
        found = sample(record)
        assert found.tokens[:-1].tolist() == rendered("Which?", "yes")
        assert found.sign == (1 if good else -1)
        assert found.weights[-1] == 0


class TestConversion:
    """One preference set for every stage."""

    def test_a_pair_is_two_judgements(self) -> None:
        good, bad = converted(comparison("yes", "no"), "judgement", "all") or ()
        assert isinstance(good, Judgement)
        assert isinstance(bad, Judgement)
        assert (good.good, good.answer[0].content, bad.good, bad.answer[0].content) == (True, "yes", False, "no")

    def test_a_pair_is_a_conversation_only_when_asked(self) -> None:
        pair = comparison("yes", "no")
        assert converted(pair, "conversation", "all") is None
        (chosen,) = converted(pair, "conversation", "chosen") or ()
        assert isinstance(chosen, Conversation)
        assert [message.content for message in chosen.messages] == ["Which?", "yes"]

    def test_nothing_else_is_converted(self) -> None:
        assert converted(Document(Source("f", 1), "text"), "conversation", "chosen") is None


def rows(*, pairs: int = 3) -> list[Row]:
    records = [comparison("yes " * (i + 1), "no" * (i + 1), prompt="Q" * (3 * i + 1), line=i + 1) for i in range(pairs)]
    return list(pack([sample(record) for record in records], 200))


def test_shards_keep_verdicts(tmp_path: object) -> None:
    from pathlib import Path

    import pyarrow as pa

    from cairn.data.shards import _row

    path = Path(str(tmp_path)) / "0.arrow"
    packed = rows()
    with ShardWriter(path) as writer:
        for row in packed:
            writer.write(row)
    batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    for index, row in enumerate(packed):
        kept = _row(batch, index)
        assert_rows_equal(kept, row)
        assert kept.verdicts is not None
        assert row.verdicts is not None
        for name in ("prefixes", "signs", "margins", "importances"):
            assert np.array_equal(getattr(kept.verdicts, name), getattr(row.verdicts, name)), name


def test_a_shared_prompt_gives_the_logits_of_each_answer_alone() -> None:
    model = build_model()
    assert sees_prefixes(model)
    packed = rows()
    shared = collate(packed, pad_token=0)
    alone = collate(packed, pad_token=0, shared=False)
    found = []
    for batch in (shared, alone):
        inputs = forward_inputs(batch.tokens, batch.segments, batch.positions, model, prefixes=batch.prefixes)
        with torch.no_grad():
            logits = model(**inputs).logits.log_softmax(-1)
        chosen = logits.gather(-1, batch.labels[..., None])[..., 0] * batch.weights
        assert batch.answers is not None
        ids = batch.answers.ids
        sums = torch.zeros(len(batch.answers.signs)).index_add(0, ids[ids >= 0], chosen[ids >= 0])
        found.append((sums, logits.flatten(0, 1)[batch.answers.ends]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-4)


def test_taken_apart_rows_are_prompt_and_answer() -> None:
    (row, *_) = rows(pairs=1)
    chosen, rejected = taken_apart(row)
    assert chosen.positions.tolist() == list(range(len(chosen)))
    assert chosen.tokens.tolist() == rendered("Q", "yes ")
    assert rejected.tokens.tolist() == rendered("Q", "no")


def test_a_batch_moves_with_all_its_parts() -> None:
    batch = collate(rows(), pad_token=0)
    moved = batch.to("meta")
    assert moved.tokens.device.type == "meta"
    assert moved.answers is not None
    assert moved.answers.ends.device.type == "meta"
    assert moved.prefixes is not None
    assert moved.prefixes.device.type == "meta"
