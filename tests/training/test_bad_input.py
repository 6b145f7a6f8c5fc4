"""What preference data gets wrong: counted with its reason or refused before the first step, and no figure is not a number."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import build_tokenizer
from tests.training.runs import recipe_for, run_local

from cairn.config.recipe import Recipe
from cairn.data.drops import Dropped, DropReason
from cairn.data.encoding import Encoder
from cairn.data.judging import judged_samples
from cairn.data.manifest import Manifest
from cairn.data.pipeline import prepare_local
from cairn.errors import DataError
from cairn.records import Comparison, Judgement, Message, Source

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

BARE = (
    "{% for m in messages %}{{ '?' + m['content'] + '\n' if m['role'] == 'user' else '=' + m['content'] }}{% endfor %}"
)
"""A template that closes no turn, so that an empty answer has no token at all."""


def reading(folder: Path, model: Path, stage: str, lines: Sequence[dict[str, Any]], **data: Any) -> Recipe:
    """A recipe of `stage` over `lines`, whatever share of them is unusable."""
    folder.mkdir(exist_ok=True)
    path = folder / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return recipe_for(folder, model, stage, data={"train": [str(path)], **data}, training={"steps": 3})


def pair(number: int, chosen: str = "yes", rejected: str = "no", prompt: str = "Which?") -> dict[str, str]:
    return {"prompt": f"{number} {prompt}", "chosen": chosen, "rejected": rejected}


def verdict(number: int, *, good: bool) -> dict[str, Any]:
    return {"prompt": f"{number} Which?", "completion": "yes" if good else "no", "label": good}


PAIRS = [
    *(pair(number) for number in range(8)),
    pair(8, chosen="same", rejected="same"),
    pair(9, chosen=""),
    pair(10, rejected=" \n"),
    pair(11, prompt="long " * 30),
]


@pytest.mark.parametrize("stage", ["reward", "dpo", "kto"])
def test_pairs_that_teach_nothing_are_counted_by_reason(stage: str, tmp_path: Path, tiny_path: Path) -> None:
    recipe = reading(tmp_path, tiny_path, stage, PAIRS)
    manifest = prepare_local(recipe).manifest
    long = 2 if stage == "kto" else 1
    assert manifest.drops == {
        DropReason.NO_PREFERENCE.value: 1,
        DropReason.EMPTY.value: 2,
        DropReason.TOO_LONG.value: long,
    }
    assert manifest.samples == (16 if stage == "kto" else 8)
    assert manifest.judged == ({"good": 8, "bad": 8} if stage == "kto" else {})
    assert finite(run_local(recipe))


def test_a_prompt_longer_than_the_window_is_cut_where_the_recipe_says_so(tmp_path: Path, tiny_path: Path) -> None:
    manifest = prepare_local(reading(tmp_path, tiny_path, "dpo", PAIRS, truncation="keep_end")).manifest
    assert manifest.samples == 9
    assert manifest.cuts == {"start of a prompt cut": 1}


@pytest.mark.parametrize("spoilt", [{"rejected": "yes"}, {"chosen": ""}, {"prompt": "long " * 30}])
def test_nothing_but_such_pairs_is_refused_with_the_reason(
    spoilt: dict[str, str], tmp_path: Path, tiny_path: Path
) -> None:
    recipe = reading(tmp_path, tiny_path, "dpo", [pair(number, **spoilt) for number in range(4)])
    with pytest.raises(DataError, match="nothing to train on in 4 records"):
        prepare_local(recipe)


@pytest.mark.parametrize(
    ("good", "told"), [(True, "6 answers are called good and 0 bad"), (False, "0 answers .* 6 bad")]
)
@pytest.mark.parametrize("streaming", [False, True])
def test_verdicts_of_one_kind_are_refused_with_the_counts(
    good: bool, told: str, streaming: bool, tmp_path: Path, tiny_path: Path
) -> None:
    lines = [verdict(number, good=good) for number in range(6)]
    with pytest.raises(DataError, match=told) as refused:
        run_local(reading(tmp_path, tiny_path, "kto", lines, streaming=streaming))
    assert "add answers of the other kind" in refused.value.next_step


def test_a_step_without_a_bad_answer_has_no_figure_of_bad_answers(tmp_path: Path, tiny_path: Path) -> None:
    """One bad answer among many: some global batch has none."""
    lines = [verdict(number, good=number != 0) for number in range(24)]
    steps = run_local(reading(tmp_path, tiny_path, "kto", lines, packing=False))
    assert finite(steps)
    assert any("reward_rejected" not in line for line in steps)
    assert all("reward_chosen" in line for line in steps)


def test_counts_of_verdicts_are_kept_and_older_shards_have_none(tmp_path: Path, tiny_path: Path) -> None:
    lines = [verdict(number, good=number % 3 == 0) for number in range(6)]
    folder = prepare_local(reading(tmp_path, tiny_path, "kto", lines)).train
    assert Manifest.read(folder).judged == {"good": 2, "bad": 4}
    older = json.loads((folder / "manifest.json").read_text())
    del older["judged"]
    (tmp_path / "manifest.json").write_text(json.dumps(older))
    assert Manifest.read(tmp_path).judged == {}


def test_an_answer_without_a_token_is_dropped_with_the_reason() -> None:
    asked, nothing, something = (Message("user", "Which?"),), Message("assistant", ""), Message("assistant", "yes")
    here = Source("f", 1)
    records = [
        Judgement(here, asked, (nothing,), good=True),
        Comparison(here, asked, (something,), (nothing,)),
        Comparison(here, asked, (nothing,), (something,)),
        Judgement(here, asked, (Message("assistant", "yes", weight=0.0),), good=False),
    ]
    found = list(judged_samples(Encoder(build_tokenizer(chat_template=BARE), 96), records))
    assert [one.reason for one in found if isinstance(one, Dropped)] == [DropReason.NOTHING_TO_TRAIN] * 4


def finite(lines: list[dict[str, Any]]) -> bool:
    """Whether every figure of every step is a number."""
    assert lines
    return all(math.isfinite(value) for line in lines for value in line.values() if isinstance(value, int | float))
