"""The quality classifier: two generated domains told apart, the Pareto draw, and the file between training and filter."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from tests.data.filters.verdicts import reason

from cairn.data.classifier import Classifier, Training, excerpt
from cairn.data.filters.quality import pareto_draw
from cairn.data.train_filter import train_filter
from cairn.errors import DataError, UserError

pytestmark = pytest.mark.unit

SHARED = [f"common{i}" for i in range(200)]
OF_DOMAIN = {"good": [f"prose{i}" for i in range(100)], "bad": [f"spam{i}" for i in range(100)]}
SCORES = {0.0: 0.3874, 0.1: 0.2955, 0.5: 0.141, 0.6: 0.0796, 0.9: 0.0791, 1.0: 0.0175}
"""Scores and how frequent they are; the moments of this distribution are the paper's nine rates to 2e-4."""
KEEP_RATES = {1: 0.5894, 2: 0.3649, 3: 0.2390, 4: 0.1671, 5: 0.1239, 6: 0.0974, 7: 0.0802, 8: 0.0685, 9: 0.0602}
"""α → the share of Common Crawl that the Pile's draw keeps."""


def texts(domain: str, count: int, seed: int) -> list[str]:
    """Documents of which every sixth word is of the domain, on average."""
    chance = random.Random(f"{domain} {seed}")
    return [
        "\n".join(
            " ".join(chance.choice(OF_DOMAIN[domain] if chance.random() < 1 / 6 else SHARED) for _ in range(20))
            for _ in range(3)
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("domains")
    for domain in OF_DOMAIN:
        rows = [json.dumps({"text": text}) for text in [*texts(domain, 400, 0), "too short"]]
        (folder / f"{domain}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(files):
    return files / "quality.safetensors"


@pytest.fixture(scope="module")
def report(files, model):
    return train_filter([str(files / "good.jsonl")], [str(files / "bad.jsonl")], model)


def test_two_domains_are_told_apart_on_documents_never_seen(report):
    for side in (report.positive, report.negative):
        assert (side.trained + side.held_out, side.short) == (400, 1)
        assert side.held_out > 20
        assert side.right > 0.95
    assert report.positive.kept > 0.6
    assert report.negative.kept < 0.4


def test_training_and_scoring_do_not_depend_on_what_stands_beside(files, model, report):
    again = model.with_name("again.safetensors")
    assert train_filter([str(files / "good.jsonl")], [str(files / "bad.jsonl")], again) == report
    assert again.read_bytes() == model.read_bytes()
    classifier = Classifier.read(model)
    excerpts = [excerpt(text) for text in texts("good", 3, 9)]
    alone = np.array([classifier.scores([text])[0] for text in excerpts])
    np.testing.assert_allclose(classifier.scores(excerpts), alone, rtol=1e-9)


def test_the_filter_keeps_by_draw_or_by_score(model, report):
    good, bad = texts("good", 200, 1), texts("bad", 200, 1)
    drawn = [sum(reason("quality", text, model=str(model)) is None for text in side) / 200 for side in (good, bad)]
    assert drawn[0] > 0.6 > 0.4 > drawn[1]
    assert {reason("quality", text, model=str(model)) for text in bad} == {None, "not drawn by its score"}
    by_score = [reason("quality", text, model=str(model), min_score=0.5) for text in (*good, *bad)]
    assert by_score.count(None) == pytest.approx(200, abs=10)
    assert reason("quality", "x" * 100, model=str(model)) == "too short to judge"


@pytest.mark.parametrize(("alpha", "rate"), KEEP_RATES.items())
def test_the_draw_keeps_what_the_pile_keeps(alpha, rate):
    exact = sum(share * (2 - score) ** -alpha for score, share in SCORES.items())
    assert exact == pytest.approx(rate, abs=3e-4)
    draws = np.array([pareto_draw(f"document {i}", alpha) for i in range(20_000)])
    drawn = sum(share * (draws > 1 - score).mean() for score, share in SCORES.items())
    assert drawn == pytest.approx(rate, abs=0.012)


def test_the_draw_is_of_the_text_alone():
    assert pareto_draw("a text", 3.0) == pareto_draw("a text", 3.0) != pareto_draw("another", 3.0)
    assert pareto_draw("a text", 3.0) > 0


def test_what_is_judged_of_a_text():
    text = "".join(chr(0x100 + i % 500) for i in range(9000))
    assert excerpt(text) == text[2500:4000]
    assert excerpt(text[:2000]) == text[500:2000]
    assert excerpt("a\n" * 51) == "a " * 51
    assert (excerpt("a" * 100), excerpt("a" * 101)) == (None, "a" * 101)


def test_files_that_are_no_classifier_and_sets_that_are_empty(tmp_path, files):
    from safetensors.numpy import save_file

    other = tmp_path / "other.safetensors"
    save_file({"weights": np.zeros(4, np.float32)}, other, metadata={"kind": "another"})
    (tmp_path / "text").write_text("{}")
    for path in (other, tmp_path / "text", tmp_path / "none"):
        with pytest.raises(DataError, match="train-filter"):
            Classifier.read(path)
    with pytest.raises(UserError, match="0 negative"):
        Classifier.fit(texts("good", 3, 0), [], Training())


def test_the_command(files, capsys):
    from typer.testing import CliRunner

    from cairn.cli.main import app

    paths = ["--positive", str(files / "good.jsonl"), "--negative", str(files / "bad.jsonl")]
    done = CliRunner().invoke(app, ["data", "train-filter", *paths, "--output", str(files / "new" / "m.safetensors")])
    assert done.exit_code == 0, done.output
    assert (files / "new" / "m.safetensors").exists()
    assert "judged right" in done.output
