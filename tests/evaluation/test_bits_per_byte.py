"""Documents to bits per byte: bytes of the source, long documents, independence of how the work is cut."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from tests.tiny import build_model, build_tokenizer

from cairn.errors import CairnError, DataError, ModelError
from cairn.evaluation.bits_per_byte import DocumentScore, bits_per_byte, score_documents, score_item
from cairn.evaluation.ledger import Ledger
from cairn.evaluation.pieces import Piece, items, pieces, position_bucket, prefix_token
from cairn.records import Document, Source

pytestmark = pytest.mark.unit

WINDOW = 32
TEXTS = ["", "a", "héllo wörld €", "x" * 31, "y" * 32, "zebra " * 40, "🜁 air, 🜂 fire", "short", "row\x00nul\r\n\ttab"]


def documents(texts: list[str] = TEXTS) -> list[Document]:
    return [Document(Source("a.jsonl", line), text, "Github") for line, text in enumerate(texts, start=1)]


def scored(docs: list[Document], **options: Any) -> list[DocumentScore]:
    return list(score_documents(build_model(), build_tokenizer(), docs, window=WINDOW, **options))


def by_hand(text: str) -> float:
    """The nats of a text, window by window, each token's log-softmax in float64."""
    model, tokenizer = build_model(), build_tokenizer()
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    row = [tokenizer.bos_token_id, *tokens]
    nats = 0.0
    with torch.no_grad():
        for done in range(0, len(tokens), WINDOW):
            end = min(done + WINDOW, len(tokens))
            begin = max(0, end - WINDOW)
            log_p = model(torch.tensor([row[begin:end]])).logits[0].double().log_softmax(-1)
            nats -= sum(log_p[i - begin, row[i + 1]].item() for i in range(done, end))
    return nats


def test_documents_by_hand() -> None:
    for found, document in zip(scored(documents()), documents(), strict=True):
        assert (found.file, found.line, found.subset) == ("a.jsonl", document.source.line, "Github")
        assert found.bytes == found.tokens == len(document.text.encode())  # the tiny tokenizer has a token a byte
        assert found.nats == pytest.approx(by_hand(document.text), rel=1e-5)
        assert found.exact


def test_bpb_is_the_byte_perplexity_of_a_byte_model() -> None:
    found = scored(documents())
    tokens = sum(score.tokens for score in found)
    per_byte = math.exp(sum(by_hand(text) for text in TEXTS) / tokens)
    assert 2 ** bits_per_byte(found) == pytest.approx(per_byte, rel=1e-5)


@pytest.mark.parametrize(
    "options", [{"batch_tokens": 500}, {"item_tokens": 1}, {"item_tokens": 70, "batch_tokens": 64}]
)
def test_batch_and_item_size_do_not_matter(options: dict[str, int]) -> None:
    for one, other in zip(scored(documents()), scored(documents(), **options), strict=True):
        assert other.nats == pytest.approx(one.nats, rel=1e-5)
        assert (other.line, other.tokens, other.bytes) == (one.line, one.tokens, one.bytes)


def test_order_does_not_matter() -> None:
    docs = documents()
    random.Random(1).shuffle(docs)
    shuffled = sorted(scored(docs), key=lambda score: score.line)
    assert [score.nats for score in shuffled] == pytest.approx([score.nats for score in scored(documents())], rel=1e-5)
    assert bits_per_byte(shuffled) == pytest.approx(bits_per_byte(scored(documents())), rel=1e-6)


def test_a_long_document_becomes_several_pieces_that_any_worker_may_score() -> None:
    docs = documents(["q" * 1000, "short"])
    found = list(pieces(docs, build_tokenizer(), window=WINDOW, item_tokens=100))
    long = [piece for piece in found if piece.line == 1]
    assert len(long) > 5
    assert all(piece.cost <= 100 for piece in found)
    groups = list(items(found, item_tokens=100))
    assert [piece for group in groups for piece in group] == found
    random.Random(0).shuffle(groups)
    ledger = Ledger()
    joined = [score for group in groups for score in ledger.add(score_item(build_model(), group))]
    ledger.close()
    whole = scored(docs)
    for score in joined:
        assert score.nats == pytest.approx(whole[score.line - 1].nats, rel=1e-5)
    assert len(joined) == 2


def test_by_position_covers_every_token() -> None:
    ledger = Ledger()
    total = list(score_documents(build_model(), build_tokenizer(), documents(), window=WINDOW, ledger=ledger))
    assert [position_bucket(position) for position in (0, 1, 2, 3, 4, 7, 8)] == [0, 1, 2, 2, 3, 3, 4]
    assert ledger.by_position[0].weight == sum(1 for text in TEXTS if text)
    assert sum(metric.weight for metric in ledger.by_position.values()) == sum(score.tokens for score in total)
    assert sum(metric.total for metric in ledger.by_position.values()) == pytest.approx(sum(s.nats for s in total))


def test_special_tokens_of_the_tokenizer_are_not_added() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", tokenizer.bos_token_id)]
    )
    assert len(tokenizer("ab")["input_ids"]) == 3
    (piece,) = pieces(documents(["ab"]), tokenizer, window=WINDOW)
    assert piece.tokens == 2
    assert piece.windows[0][0][0] == tokenizer.bos_token_id


def test_prefix_is_bos_else_eos_else_an_error() -> None:
    tokenizer = build_tokenizer()
    assert prefix_token(tokenizer) == tokenizer.bos_token_id != tokenizer.eos_token_id
    tokenizer.bos_token = None
    assert prefix_token(tokenizer) == tokenizer.eos_token_id
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match="neither a BOS nor an EOS"):
        prefix_token(tokenizer)


def test_bytes_are_the_sources_where_the_tokenizer_loses_some() -> None:
    from tokenizers import normalizers

    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    text = "ﬁne ①"
    (score,) = score_documents(build_model(), tokenizer, documents([text]), window=WINDOW)
    assert score.bytes == len(text.encode()) != score.tokens
    assert not score.exact


def test_text_that_is_not_unicode_is_named() -> None:
    with pytest.raises(DataError, match=r"a\.jsonl:1: text that is not valid Unicode"):
        list(pieces([Document(Source("a.jsonl", 1), "\ud83d")], AnyTokenizer(), window=WINDOW))


class AnyTokenizer:
    """Takes what a Rust tokenizer would refuse."""

    bos_token_id, eos_token_id = 1, 2

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [5] * len(text)}

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "" * len(tokens)


class TestLedger:
    """A wrong count never becomes a number."""

    def pieces(self) -> list[Piece]:
        return list(pieces(documents(["q" * 200]), build_tokenizer(), window=WINDOW, item_tokens=64))

    def test_a_lost_piece(self) -> None:
        ledger = Ledger()
        assert list(ledger.add(score_item(build_model(), self.pieces()[:-1]))) == []
        with pytest.raises(CairnError, match=r"a\.jsonl:1: 192 of 200 tokens were scored"):
            ledger.close()

    def test_a_piece_instead_of_another(self) -> None:
        found = self.pieces()
        with pytest.raises(CairnError, match="scored twice or not at all"):
            list(Ledger().add(score_item(build_model(), [found[0], *found[:-1]])))

    def test_a_document_twice(self) -> None:
        found = score_item(build_model(), self.pieces())
        ledger = Ledger()
        assert len(list(ledger.add(found))) == 1
        with pytest.raises(CairnError, match="came twice"):
            list(ledger.add(found))

    def test_too_many_targets(self) -> None:
        (piece,) = score_item(build_model(), list(pieces(documents(["abc"]), build_tokenizer(), window=WINDOW)))
        from msgspec.structs import replace

        with pytest.raises(CairnError, match="4 tokens scored of 3"):
            list(Ledger().add([replace(piece, scored=4)]))
        with pytest.raises(CairnError, match="none of 3 tokens was scored"):
            list(Ledger().add([replace(piece, scored=0)]))
        with pytest.raises(CairnError, match="the model is broken"):
            list(Ledger().add([replace(piece, nats=math.nan)]))
        with pytest.raises(CairnError, match="3 bytes of text became no token"):
            list(Ledger().add([replace(piece, tokens=0, scored=0)]))

    def test_a_model_of_not_a_numbers(self) -> None:
        model = build_model()
        with torch.no_grad():
            model.model.norm.weight.fill_(math.nan)
        with pytest.raises(CairnError, match="the model is broken"):
            list(score_documents(model, build_tokenizer(), documents(), window=WINDOW))
