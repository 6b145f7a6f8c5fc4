"""Combining: each way against its definition on whole matrices and against PEFT, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.adapters.updates import SHAPES, delta, lora, relative
from tests.tiny import build_model

from cairn.adapters.attach import attach_weights
from cairn.adapters.combine import Combined, combine
from cairn.adapters.combining import WAYS
from cairn.adapters.files import read_lora
from cairn.adapters.plain import plain_lora
from cairn.errors import AdapterError

pytestmark = pytest.mark.unit

Q, V, DOWN = SHAPES
WEIGHTS = (0.7, 0.3)


def wanted(path: str, adapters: Any, weights: Any = WEIGHTS) -> torch.Tensor:
    return torch.stack([weight * delta(one, path) for one, weight in zip(adapters, weights, strict=True)]).sum(0)


def measured(combined: Combined, adapters: Any, weights: Any = WEIGHTS) -> dict[str, float]:
    """The error of each module by whole matrices."""
    return {path: relative(delta(combined.weights, path), wanted(path, adapters, weights)) for path in SHAPES}


@pytest.mark.parametrize("how", WAYS)
def test_the_error_is_that_of_whole_matrices(how: str) -> None:
    adapters = (lora(1), lora(2))
    combined = combine(adapters, WEIGHTS, how=how, density=0.4)
    expected = measured(combined, adapters)
    assert combined.error.modules == pytest.approx(expected, rel=1e-6, abs=1e-9)
    squares = {path: float(wanted(path, adapters).square().sum()) for path in SHAPES}
    total = math.sqrt(sum(expected[path] ** 2 * squares[path] for path in SHAPES) / sum(squares.values()))
    assert combined.error.total == pytest.approx(total, rel=1e-6, abs=1e-9)
    assert (combined.error.total < 1e-6) == (how == "cat")


@pytest.mark.parametrize("weights", [(0.7, 0.3), (1.0, 1.0), (2.0, -0.5), (-1.0, -1.0)])
def test_cat_is_exact_for_unequal_ranks_strengths_places_and_signs(weights: tuple[float, float]) -> None:
    one = lora(1, {Q: 4, V: 2}, scaling=2.0)
    other = lora(2, {Q: 3, DOWN: 8}, scaling=16 / math.sqrt(8), dtype=torch.bfloat16)
    combined = combine((one, other), weights)
    assert combined.error.total < 1e-7
    assert max(measured(combined, (one, other), weights).values()) < 1e-6
    assert {path: a.shape[0] for path, (a, _) in combined.weights.layers.items()} == {Q: 7, V: 2, DOWN: 8}


def test_one_adapter_with_weight_one_is_itself_bit_for_bit() -> None:
    one = lora(1, scaling=2.0)
    combined = combine([one], [1.0])
    assert all(torch.equal(combined.weights.layers[path][0], one.layers[path][0]) for path in SHAPES)
    assert combined.error.total < 1e-12


def test_svd_is_exact_at_the_sum_of_ranks_and_the_nearest_below() -> None:
    adapters = (lora(1), lora(2))
    assert combine(adapters, WEIGHTS, how="svd", rank=8).error.total < 1e-6
    smaller = combine(adapters, WEIGHTS, how="svd", rank=4)
    for path in SHAPES:
        tail = torch.linalg.svdvals(wanted(path, adapters))
        best = float(tail[4:].norm() / tail.norm())
        assert smaller.error.modules[path] == pytest.approx(best, rel=1e-5)
    assert smaller.weights.rank == 4


def test_linear_adds_a_and_b_separately_and_says_how_far_that_is() -> None:
    one, other = lora(1), lora(2)
    combined = combine((one, other), WEIGHTS, how="linear")
    roots = [math.sqrt(0.7 * 1.5), math.sqrt(0.3 * 1.5)]
    a = roots[0] * one.layers[Q][0] + roots[1] * other.layers[Q][0]
    b = roots[0] * one.layers[Q][1] + roots[1] * other.layers[Q][1]
    assert relative(delta(combined.weights, Q), (b.double() @ a.double())) < 1e-6
    assert combined.error.total > 0.3


def test_dare_keeps_the_mean_and_repeats_by_its_seed() -> None:
    adapters = (lora(1), lora(2))
    draws = [combine(adapters, WEIGHTS, how="dare", density=0.8, rank=64, seed=seed) for seed in range(40)]
    mean = torch.stack([delta(draw.weights, Q) for draw in draws]).mean(0)
    assert relative(mean, wanted(Q, adapters)) < draws[0].error.modules[Q] / 4
    again = combine(adapters, WEIGHTS, how="dare", density=0.8, rank=64, seed=0)
    assert torch.equal(again.weights.layers[Q][0], draws[0].weights.layers[Q][0])
    assert again.error.total != draws[1].error.total
    assert combine(adapters, WEIGHTS, how="dare", density=1.0, rank=8).error.total < 1e-5


@pytest.mark.parametrize(
    ("how", "theirs"),
    [
        ("cat", "cat"),
        ("svd", "svd"),
        ("linear", "linear"),
        ("ties", "ties_svd"),
        ("magnitude_prune", "magnitude_prune_svd"),
    ],
)
def test_peft_gets_the_same(how: str, theirs: str) -> None:
    from peft import PeftModel

    adapters = [lora(1), lora(2)]
    model: PeftModel = attach_weights(build_model(intermediate_size=128), adapters[0])
    model.add_adapter("second", model.peft_config["default"])
    for path, (a, b) in adapters[1].layers.items():
        layer: Any = model.get_base_model().get_submodule(path)
        layer.lora_A["second"].weight.data.copy_(a)
        layer.lora_B["second"].weight.data.copy_(b)
    cut = {} if how in ("cat", "linear") else {"svd_rank": 5}
    sparse = {"density": 0.3} if how in ("ties", "magnitude_prune") else {}
    model.add_weighted_adapter(["default", "second"], list(WEIGHTS), "sum", combination_type=theirs, **cut, **sparse)
    ours = combine(adapters, WEIGHTS, how=how, rank=5 if cut else None, **sparse).weights
    for path in SHAPES:
        layer = model.get_base_model().get_submodule(path)
        assert relative(delta(ours, path), layer.get_delta_weight("sum").double()) < 1e-5


def test_adapters_that_score_add_their_heads_and_combine_with_no_other() -> None:
    one, other = lora(1, head=True), lora(2, head=True)
    combined = combine((one, other), WEIGHTS)
    assert one.head is not None
    assert other.head is not None
    assert combined.weights.head is not None
    torch.testing.assert_close(combined.weights.head, 0.7 * one.head + 0.3 * other.head)
    assert combined.weights.config["task_type"] == "SEQ_CLS"
    with pytest.raises(AdapterError, match="some speak and some score"):
        combine((one, lora(2)), WEIGHTS)


@pytest.mark.parametrize(
    ("adapters", "weights", "settings", "reason"),
    [
        ((), (), {}, "0 adapters"),
        ((lora(1), lora(2)), (1.0,), {}, "2 adapters and 1 weights"),
        ((lora(1), lora(2)), (1.0, math.nan), {}, "other than zero, not 1, nan"),
        ((lora(1), lora(2)), (1.0, 0.0), {}, "other than zero, not 1, 0"),
        ((lora(1), lora(2)), WEIGHTS, {"how": "tie"}, "did you mean 'ties'"),
        ((lora(1), lora(2)), WEIGHTS, {"rank": 3}, "cat leaves no choice of a rank"),
        ((lora(1), lora(2)), WEIGHTS, {"how": "svd", "rank": 0}, "rank 0 is not from 1"),
        ((lora(1), lora(2)), WEIGHTS, {"how": "dare", "density": 0.0}, "density 0 is not above 0"),
        ((lora(1), lora(2, 3)), WEIGHTS, {"how": "linear"}, "needs equal ranks.*has 3, 4"),
        ((lora(1, 200), lora(2, 100)), WEIGHTS, {}, "rank 300, at most 256"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_reason(
    adapters: Any, weights: Any, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AdapterError, match=reason):
        combine(adapters, weights, **settings)


def test_adapters_of_different_bases_are_refused() -> None:
    narrow = lora(2)
    a, b = narrow.layers[Q]
    narrow.layers[Q] = (a[:, :32], b)
    with pytest.raises(AdapterError, match=r"32 → 64 and 64 → 64 features.*different bases"):
        combine((lora(1), narrow), WEIGHTS)


def test_updates_that_cancel_out_are_refused() -> None:
    with pytest.raises(AdapterError, match="the sum is the base"):
        combine((lora(1), lora(1)), (1.0, -1.0))
    nothing = plain_lora({path: (a, 0 * b) for path, (a, b) in lora(1).layers.items()})
    with pytest.raises(AdapterError, match="the sum is the base"):
        combine([nothing], [1.0])


def test_dora_and_other_kinds_never_get_this_far(tmp_path: Path) -> None:
    from tests.adapters.folders import plain_config, write_adapter

    folder = write_adapter(tmp_path / "dora", plain_config(use_dora=True))
    with pytest.raises(AdapterError, match="use_dora = True is not plain LoRA"):
        read_lora(folder)
