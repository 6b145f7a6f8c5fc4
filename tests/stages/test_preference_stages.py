"""Every stage of preference: its loss over packed rows with shared prompts is the paper's formula over answers alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.stages.judged import PAIRS, SAID, batch_of, judgement, logp_and_count, rows, samples, whole_answers
from tests.tiny import build_model

from cairn.data.batch import collate
from cairn.data.mismatch import mismatched
from cairn.errors import DataError
from cairn.plugins import STAGES
from cairn.records import Comparison, Judgement
from cairn.stages.base import Models, Stage

pytestmark = pytest.mark.unit
Formula = Callable[[Any, Any], torch.Tensor]


def sigma(x: torch.Tensor | float) -> torch.Tensor:
    return 1 / (1 + torch.exp(-torch.as_tensor(x)))


class Said:
    """One pair straight from the definition: sums c, r, counts nc, nr, and the reference's rc, rr."""

    def __init__(self, model: Any, reference: Any, sample: Any) -> None:
        (self.c, self.nc), (self.r, self.nr) = (logp_and_count(model, *answer) for answer in whole_answers(sample))
        with torch.no_grad():
            (self.rc, _), (self.rr, _) = (logp_and_count(reference, *answer) for answer in whole_answers(sample))

    @property
    def h(self) -> torch.Tensor:
        return (self.c - self.rc) - (self.r - self.rr)


def odds(logp: torch.Tensor) -> torch.Tensor:
    return logp - torch.log(1 - torch.exp(logp))


PAIRWISE: dict[str, tuple[str, dict[str, Any], Formula]] = {
    "dpo": ("dpo", {"beta": 0.3}, lambda s, _: -torch.log(sigma(0.3 * s.h))),
    "dpo smoothed": (
        "dpo",
        {"beta": 0.3, "label_smoothing": 0.1},
        lambda s, _: -0.9 * torch.log(sigma(0.3 * s.h)) - 0.1 * torch.log(sigma(-0.3 * s.h)),
    ),
    "dpo sft": (
        "dpo",
        {"beta": 0.3, "sft_weight": 0.7},
        lambda s, _: -torch.log(sigma(0.3 * s.h)) - 0.7 * s.c / s.nc,
    ),
    "ipo": (
        "dpo",
        {"loss": "ipo", "beta": 0.3},
        lambda s, _: ((s.c - s.rc) / s.nc - (s.r - s.rr) / s.nr - 1 / 0.6) ** 2,
    ),
    "ipo of sums": ("dpo", {"loss": "ipo", "beta": 0.3, "per_token": False}, lambda s, _: (s.h - 1 / 0.6) ** 2),
    "bco term": (
        "dpo",
        {"beta": 0.3, "bco_weight": 0.5},
        lambda s, _: (
            (
                -torch.log(sigma(0.3 * s.h))
                - 0.5 * (torch.log(sigma(0.3 * (s.c - s.rc))) + torch.log(sigma(-0.3 * (s.r - s.rr))))
            )
            / 1.5
        ),
    ),
    "orpo": (
        "orpo",
        {"beta": 0.2},
        lambda s, _: -s.c / s.nc - 0.2 * torch.log(sigma(odds(s.c / s.nc) - odds(s.r / s.nr))),
    ),
    "simpo": (
        "simpo",
        {"beta": 2.0, "gamma": 0.4},
        lambda s, _: -torch.log(sigma(2 * (s.c / s.nc - s.r / s.nr) - 0.4)),
    ),
    "cpo": (
        "cpo",
        {"beta": 0.1, "sft_weight": 0.5},
        lambda s, _: -torch.log(sigma(0.1 * (s.c - s.r))) - 0.5 * s.c / s.nc,
    ),
}


def stage_of(name: str, config: dict[str, Any]) -> Stage:
    stage: type[Stage] = STAGES.load(name)
    return stage(stage.Config.parse(config))


def gradients(model: Any) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("case", PAIRWISE)
@pytest.mark.parametrize(("packed", "shared"), [(True, True), (False, False)])
def test_pairs_equal_the_closed_form(case: str, packed: bool, shared: bool) -> None:
    name, config, formula = PAIRWISE[case]
    model, again, reference = build_model().double(), build_model().double(), build_model(seed=1).double()
    wanted = torch.zeros((), dtype=torch.float64)
    for pair, sample in zip(PAIRS, samples(PAIRS), strict=True):
        wanted = wanted + pair.weight * formula(Said(again, reference, sample), pair)
    wanted.backward()

    stage = stage_of(name, config)
    batch = batch_of(PAIRS, packed=packed, shared=shared)
    output = stage.loss(batch, Models(model, reference))
    output.total.backward()
    assert output.total.item() == pytest.approx(wanted.item(), rel=1e-9)
    assert output.weight == stage.weight(batch) == 2.5
    difference = (gradients(model) - gradients(again)).norm() / gradients(again).norm()
    assert difference < 1e-6


def test_dpo_starts_at_ln_2_with_zero_margin() -> None:
    model = build_model()
    output = stage_of("dpo", {}).loss(batch_of(PAIRS), Models(model, model))
    assert output.total.item() / output.weight == pytest.approx(math.log(2), rel=1e-6)
    assert output.metrics["margin"].value == 0.0
    assert output.metrics["accuracy"].value == 0.5


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_length_desensitised_dpo_starts_at_ln_2_and_weighs_the_tail(alpha: float) -> None:
    model, reference = build_model().double(), build_model(seed=1).double()
    stage = stage_of("dpo", {"ld_alpha": alpha})
    start = stage.loss(batch_of(PAIRS), Models(model, model))
    assert start.total.item() / start.weight == pytest.approx(math.log(2), rel=1e-9)

    wanted = 0.0
    for pair, sample in zip(PAIRS, samples(PAIRS), strict=True):
        chosen, rejected = whole_answers(sample)
        shorter = min(float(weights.sum()) for _, weights in (chosen, rejected))
        sums = []
        for tokens, weights in (chosen, rejected):
            counted = torch.where(weights.cumsum(0) > shorter, alpha * weights, weights)
            with torch.no_grad():
                sums.append(logp_and_count(model, tokens, counted)[0] - logp_and_count(reference, tokens, counted)[0])
        wanted -= pair.weight * math.log(sigma(0.1 * (sums[0] - sums[1])))
    assert stage.loss(batch_of(PAIRS), Models(model, reference)).total.item() == pytest.approx(wanted, rel=1e-9)


def test_what_was_computed_ahead_stands_for_the_reference() -> None:
    import dataclasses

    model, reference = build_model().double(), build_model(seed=1).double()
    batch, stage = batch_of(PAIRS), stage_of("dpo", {})
    from cairn.stages._answers import reference_logps

    ahead = reference_logps(batch, Models(model, reference))
    assert batch.answers is not None
    given = dataclasses.replace(batch, answers=dataclasses.replace(batch.answers, reference=ahead))
    live = stage.loss(batch, Models(model, reference))
    assert stage.loss(given, Models(model, None)).total.item() == live.total.item()


def test_bco_measures_against_the_running_mean_of_rewards() -> None:
    model, reference = build_model().double(), build_model(seed=1).double()
    stage = stage_of("dpo", {"loss": "bco"})
    first = stage.loss(batch_of(PAIRS), Models(model, reference))
    stage.after_step(first.metrics)
    mean = (first.metrics["reward_chosen"] + first.metrics["reward_rejected"]).value
    assert stage.state["reward_sum"] / stage.state["answers"] == pytest.approx(mean)
    wanted = 0.0
    for pair, sample in zip(PAIRS, samples(PAIRS), strict=True):
        with torch.no_grad():
            said = Said(model, reference, sample)
        wanted -= pair.weight * float(
            torch.log(sigma(0.1 * (said.c - said.rc) - mean)) + torch.log(sigma(mean - 0.1 * (said.r - said.rr)))
        )
    assert stage.loss(batch_of(PAIRS), Models(model, reference)).total.item() == pytest.approx(wanted, rel=1e-9)


class TestKto:
    """Judgements against the baseline of the global batch."""

    def batch(self, records: list[Judgement], *, packed: bool = True) -> Any:
        import dataclasses

        found = rows(records, packed=packed)
        others = mismatched(found, range(len(found)), sequence_length=160)
        return dataclasses.replace(collate(found, pad_token=0), mismatched=collate(others, pad_token=0))

    @pytest.mark.parametrize("packed", [True, False])
    def test_equals_the_closed_form(self, packed: bool) -> None:
        model, reference = build_model().double(), build_model(seed=1).double()
        batch = self.batch(SAID, packed=packed)
        stage = stage_of("kto", {"beta": 0.2, "desirable_weight": 1.5})
        stage.before_step([batch], Models(model, reference), float)

        order = [row for found in rows(SAID, packed=packed) for row in found.sources]
        by_source = {str(record.source): record for record in SAID}
        said = [by_source[source] for source in order]
        lent = [
            judgement(record.source.line, said[(i + 1) % len(said)].answer[0].content, good=True)
            for i, record in enumerate(said)
        ]
        with torch.no_grad():
            drawn = []
            for sample in samples(lent):
                ((tokens, weights),) = whole_answers(sample)
                drawn.append(logp_and_count(model, tokens, weights)[0] - logp_and_count(reference, tokens, weights)[0])
            z0 = max(0.0, float(torch.stack(drawn).mean()))
            wanted = 0.0
            for record, sample in zip(SAID, samples(SAID), strict=True):
                ((tokens, weights),) = whole_answers(sample)
                d = logp_and_count(model, tokens, weights)[0] - logp_and_count(reference, tokens, weights)[0]
                wanted += float(1.5 * (1 - sigma(0.2 * (d - z0))) if record.good else 1 - sigma(0.2 * (z0 - d)))
        output = stage.loss(batch, Models(model, reference))
        assert output.metrics["kl"].value == pytest.approx(z0, rel=1e-9)
        assert output.total.item() == pytest.approx(wanted, rel=1e-9)
        assert output.weight == 4.0

    def test_the_split_over_micro_batches_changes_nothing(self) -> None:
        found = rows(SAID, packed=False)
        whole = mismatched(found, range(4), sequence_length=160)
        parts = [row for half in ([0, 2], [1, 3]) for row in mismatched(found, half, sequence_length=160)]
        texts = [sorted((s, tuple(r.tokens[r.segments == i + 1])) for r in side for i, s in enumerate(r.sources))
                 for side in (whole, parts)]  # fmt: skip
        assert texts[0] == texts[1]

    def test_another_answer_to_the_same_prompt_is_no_mismatch(self) -> None:
        same = [judgement(i, text, good=True, prompt="One?") for i, text in enumerate(("a", "b"), 1)]
        other = judgement(3, "c", good=False)
        found = rows([*same, other], packed=False)
        lent = {row.sources[i]: row for row in mismatched(found, range(3), sequence_length=160) for i in range(1)}
        assert len(lent) >= 1
        batch = self.batch([*same, other], packed=False)
        assert batch.mismatched.answers.importances.tolist() == [1.0, 1.0, 1.0]

    def test_one_prompt_alone_is_refused_with_the_reason(self) -> None:
        batch = self.batch([judgement(1, "yes", good=True), judgement(2, "no", good=False, prompt="Which 1?")])
        model = build_model()
        with pytest.raises(DataError, match="one prompt"):
            stage_of("kto", {}).before_step([batch], Models(model, model), float)


def test_the_records_they_eat() -> None:
    for name in ("dpo", "orpo", "simpo", "cpo", "reward"):
        assert STAGES.load(name).record is Comparison
    assert STAGES.load("kto").record is Judgement


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"loss": "exo"}, "infinite without label_smoothing"),
        ({"loss": "robust", "label_smoothing": 0.5}, "below 0.5"),
        ({"loss": "hinge", "label_smoothing": 0.1}, "no meaning for the loss 'hinge'"),
    ],
)
def test_options_without_meaning_are_refused(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        STAGES.load("dpo").Config.parse(config)
