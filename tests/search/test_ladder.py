"""ASHA's rule against Ray Tune's own, and its memory across a killed driver."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from cairn.search.ladder import Ladder

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("grace", "reduction", "mode"), [(1, 2, "min"), (2, 3, "max"), (3, 4, "min")])
def test_decisions_equal_those_of_ray_tune(grace: int, reduction: int, mode: str, tmp_path: Path) -> None:
    from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

    theirs = AsyncHyperBandScheduler(
        time_attr="t", metric="v", mode=mode, grace_period=grace, reduction_factor=reduction, max_t=10**6
    )
    ours = Ladder(tmp_path, grace=grace, reduction=reduction, sign=1.0 if mode == "min" else -1.0)
    generator = random.Random(0)
    trials = {f"trial_{i}": SimpleNamespace(trial_id=f"trial_{i}") for i in range(30)}
    for trial in trials.values():
        theirs.on_trial_add(SimpleNamespace(), trial)  # type: ignore[arg-type]
    reports = dict.fromkeys(trials, 0)
    stopped = 0
    while reports and max(reports.values()) < 40:
        name = generator.choice(sorted(reports))
        reports[name] += 1
        value = generator.random()
        result = {"t": reports[name], "v": value}
        decision = theirs.on_trial_result(SimpleNamespace(), trials[name], result)  # type: ignore[arg-type]
        assert ours.stops(name, reports[name], value) == (decision == TrialScheduler.STOP)
        if decision == TrialScheduler.STOP:
            stopped += 1
            del reports[name]
    assert stopped > 10
    assert sorted(ours.stopped) == sorted(set(trials) - set(reports))


def test_decisions_outlive_the_process(tmp_path: Path) -> None:
    def ladder() -> Ladder:
        return Ladder(tmp_path, grace=2, reduction=2, sign=1.0)

    assert not ladder().stops("a", 1, 9.0)
    assert not ladder().stops("a", 2, 1.0)
    assert ladder().stops("b", 2, 2.0)
    assert ladder().stops("b", 2, 0.0), "what is decided stays decided"
    assert ladder().stops("b", 3, 0.0)
    assert not ladder().stops("c", 3, 0.5)
    assert not ladder().stops("d", 4, 0.5)
    assert not ladder().stops("e", 4, 8.0, finished=True)
    assert ladder().stopped == ["b"]
    assert ladder().rungs == {2: {"a": 1.0, "b": 2.0, "c": 0.5}, 4: {"d": 0.5, "e": 8.0}}
