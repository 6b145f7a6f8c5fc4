"""Subsets mixed by documents, bytes, tokens and epochs, from the recipe to the rows of an epoch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cairn.config.data import SubsetMixture
from cairn.config.load import build
from cairn.config.recipe import Recipe
from cairn.data.components import components
from cairn.data.feed import mixture_of
from cairn.data.manifest import SubsetCounts
from cairn.data.pipeline import prepare_local
from cairn.data.shards import TokenShards
from cairn.data.shares import absent, parts_of, subset_mixture
from cairn.errors import RecipeError, UserError

pytestmark = pytest.mark.unit

TEXTS = {"Github": "def f(): return 1\n" * 40, "DM Mathematics": "7 + 8 = 15\n" * 8, "EuroParl": "le vote a lieu " * 20}
COUNTS = {"Github": 40, "DM Mathematics": 300, "EuroParl": 60}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three subsets, shuffled together, of documents of quite different lengths."""
    lines = [
        json.dumps({"text": f"{i} {TEXTS[tag]}", "meta": {"pile_set_name": tag}})
        for i in range(300)
        for tag, count in COUNTS.items()
        if i < count
    ]
    (tmp_path / "00.jsonl").write_text("\n".join(lines))
    return tmp_path


def recipe(corpus: Path, model: Path, mixture: dict[str, Any] | None, **data: Any) -> Recipe:
    settings = {"train": [str(corpus / "00.jsonl")], "sequence_length": 128, "mixture": mixture, **data}
    return build({"model": {"path": str(model)}, "data": settings, "stage": "pretrain"})


def prepared(parsed: Recipe) -> TokenShards:
    return TokenShards.open(prepare_local(parsed).train)


@pytest.mark.parametrize(
    ("by", "weights", "measure"),
    [
        ("documents", {"Github": 1, "DM Mathematics": 2, "EuroParl": 3}, lambda c: c.documents),
        ("bytes", {"Github": 5, "DM Mathematics": 1, "EuroParl": 2}, lambda c: c.source_bytes),
        ("tokens", {"Github": 1, "DM Mathematics": 1, "EuroParl": 1}, lambda c: c.tokens),
    ],
)
def test_an_epoch_has_the_wanted_proportions(
    corpus: Path, tiny_path: Path, by: str, weights: dict[str, float], measure: Any
) -> None:
    parsed = recipe(corpus, tiny_path, {"by": by, "weights": weights}, epoch_ends="all")
    shards = prepared(parsed)
    parts = parts_of(mixture_of(parsed.data, shards.manifest), shards.manifest.subsets)
    amounts = {part.counts.name: measure(part.counts) * part.epochs for part in parts}
    for name, amount in amounts.items():
        wanted = weights[name] / sum(weights.values())
        assert amount / sum(amounts.values()) == pytest.approx(wanted, rel=0.02)
    assert min(part.epochs for part in parts) == pytest.approx(1.0)


def test_rows_hold_one_subset_and_nothing_is_lost(corpus: Path, tiny_path: Path) -> None:
    shards = prepared(recipe(corpus, tiny_path, {"by": "tokens"}))
    plain = prepared(recipe(corpus, tiny_path, None))
    assert {s.name: s.documents for s in shards.manifest.subsets} == COUNTS
    lines = [json.loads(line) for line in (corpus / "00.jsonl").read_text().splitlines()]
    tags = [line["meta"]["pile_set_name"] for line in lines]
    numbers = [[int(source.rpartition(":")[2]) for source in shards[i].sources] for i in range(len(shards))]
    rows = [{tags[number - 1] for number in row} for row in numbers]
    assert all(len(row) == 1 for row in rows)
    assert [next(iter(row)) for row in rows] == sorted(next(iter(row)) for row in rows)
    assert shards.manifest.tokens == plain.manifest.tokens
    assert shards.manifest.bytes_per_subset == plain.manifest.bytes_per_subset


def test_epochs_may_be_fractions(corpus: Path, tiny_path: Path) -> None:
    epochs = {"Github": 2.5, "DM Mathematics": 0.5, "EuroParl": 1.0}
    parsed = recipe(corpus, tiny_path, {"by": "epochs", "weights": epochs})
    shards = prepared(parsed)
    mixture = mixture_of(parsed.data, shards.manifest)
    order = mixture.order(5, 0).tolist()
    begin = 0
    for subset in shards.manifest.subsets:
        times = Counter(row for row in order if begin <= row < begin + subset.rows)
        assert sum(times.values()) == round(subset.rows * epochs[subset.name])
        if subset.name == "Github":
            assert set(times.values()) == {2, 3}
        begin += subset.rows


def test_the_pile_draws_documents_by_documents_times_epochs() -> None:
    chosen = {c.tag: c for c in components() if c.tag in ("Wikipedia (en)", "Books3")}
    subsets = [
        SubsetCounts(name=tag, rows=1000 * n, documents=5000, tokens=10**6 * n, source_bytes=10**7)
        for n, tag in enumerate(sorted(chosen), start=1)
    ]
    mixture = subset_mixture(SubsetMixture(), subsets, fingerprint="f", ends="all", arrangement="shuffled")
    seen = {part.counts.name: part.epochs * part.counts.documents for part in parts_of(mixture, subsets)}
    drawn = {tag: c.raw_documents * c.epochs for tag, c in chosen.items()}
    assert seen["Wikipedia (en)"] / seen["Books3"] == pytest.approx(drawn["Wikipedia (en)"] / drawn["Books3"], rel=1e-3)
    assert len(absent(SubsetMixture(), subsets)) == 20


def test_what_has_no_weight_is_an_error(corpus: Path, tiny_path: Path) -> None:
    parsed = recipe(corpus, tiny_path, {"by": "bytes", "weights": {"Github": 1.0, "europarl": 1.0, "ArXiv": 9.0}})
    manifest = prepare_local(parsed).manifest
    with pytest.raises(UserError, match="'DM Mathematics' has no weight"):
        mixture_of(parsed.data, manifest)
    with pytest.raises(UserError, match="none of the Pile's"):
        subset_mixture(
            SubsetMixture(), [SubsetCounts("mine", 1, 1, 1, 1)], fingerprint="f", ends="all", arrangement="shuffled"
        )


@pytest.mark.parametrize("other", [{"streaming": True}, {"train": [{"path": "a", "weight": 2.0}]}])
def test_a_mixture_stands_alone(corpus: Path, tiny_path: Path, other: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="mixture"):
        recipe(corpus, tiny_path, {"by": "bytes"}, **other)
