"""Per document equal to lm-evaluation-harness, on a random tiny model and on SmolLM2 over the sample's test file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.evaluation.oracle import harness_nats

from cairn.data.documents import read_documents
from cairn.evaluation.bits_per_byte import bits_per_byte, score_documents
from cairn.evaluation.subject import Subject
from cairn.records import Document, Source

RELATIVE = 1e-4


@pytest.mark.unit
def test_tiny_model(tiny_path: Path) -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices([*"abc δ€🜂\n\t", "<|im_end|>"], k=rng.randint(1, 200))) for _ in range(12)]
    documents = [Document(Source("a", line), text) for line, text in enumerate(texts)]
    subject = Subject(str(tiny_path))
    tokenizer = subject.load_tokenizer()
    scores = list(score_documents(subject.load(), tokenizer, documents, window=32))
    plain = subject.load()
    assert [score.nats for score in scores] == pytest.approx(
        harness_nats(plain, tokenizer, texts, window=32), rel=RELATIVE
    )


@pytest.mark.slow
@pytest.mark.full
def test_smollm2_on_the_sample(smollm2_path: Path, sample_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    per_subset: dict[str, int] = {}
    documents = []
    for document in read_documents([sample_path / "test.jsonl.zst"]):
        if len(document.text) < 1000 and per_subset.setdefault(document.subset, 0) < 2:
            per_subset[document.subset] += 1
            documents.append(document)
    longest = [d for d in read_documents([sample_path / "test.jsonl.zst"]) if 3500 < len(d.text) < 4500][:1]
    documents += longest
    assert len(per_subset) >= 4
    assert longest
    subject = Subject(str(smollm2_path))
    tokenizer = subject.load_tokenizer()
    scores = list(score_documents(subject.load(), tokenizer, documents, window=256))
    assert scores[-1].tokens > 2 * 256
    plain = AutoModelForCausalLM.from_pretrained(smollm2_path).eval()
    theirs = harness_nats(plain, tokenizer, [document.text for document in documents], window=256)
    assert [score.nats for score in scores] == pytest.approx(theirs, rel=RELATIVE)
    assert 0.3 < bits_per_byte(scores) < 2.5
