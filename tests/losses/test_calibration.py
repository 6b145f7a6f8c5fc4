"""Calibration: scores that mean what they say have no error, over-sure ones have; bins add up over parts."""

from __future__ import annotations

import math

import pytest
import torch

from cairn.losses.calibration import PREFIX, calibration_metrics, expected_calibration_error
from cairn.metrics import merge

pytestmark = pytest.mark.unit


def pairs(margins: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(margins, dtype=torch.float64), torch.zeros(len(margins), dtype=torch.float64)


def test_brier_and_log_score():
    metrics = calibration_metrics(*pairs([1.0, -2.0, 0.0]), torch.tensor([1.0, 1.0, 2.0]))
    p = [1 / (1 + math.exp(-m)) for m in (1.0, -2.0, 0.0)]
    assert metrics["brier"].value == pytest.approx(((1 - p[0]) ** 2 + (1 - p[1]) ** 2 + 2 * 0.25) / 4)
    assert metrics["log_score"].value == pytest.approx(-(math.log(p[0]) + math.log(p[1]) + 2 * math.log(0.5)) / 4)


def test_a_model_that_is_right_as_often_as_it_says_has_no_error():
    """Nine of ten pairs right at a confidence of 0.9, three of four at 0.75."""
    nine, three = math.log(9), math.log(3)
    margins = [nine] * 9 + [-nine] + [three] * 3 + [-three]
    metrics = calibration_metrics(*pairs(margins), torch.ones(len(margins)))
    assert expected_calibration_error(metrics) == pytest.approx(0.0, abs=1e-12)


def test_the_error_is_the_gap_weighted_by_the_bins():
    """All wrong at 0.9 (gap 0.9, weight 1), all right at 0.75 (gap 0.25, weight 3), a tie (gap 0, weight 4)."""
    margins = [-math.log(9), math.log(3), 0.0]
    metrics = calibration_metrics(*pairs(margins), torch.tensor([1.0, 3.0, 4.0]))
    assert expected_calibration_error(metrics) == pytest.approx((0.9 * 1 + 0.25 * 3) / 8)
    assert metrics[f"{PREFIX}0.50"].value == pytest.approx(0.0)
    assert sum(name.startswith(PREFIX) for name in metrics) == 3


def test_parts_add_up_and_extremes_have_a_bin():
    generator = torch.Generator().manual_seed(0)
    chosen, rejected = torch.randn(2, 200, generator=generator) * 4
    chosen[:2], weights = torch.tensor([1e4, -1e4]), torch.rand(200, generator=generator)
    whole = calibration_metrics(chosen, rejected, weights)
    parts = merge(calibration_metrics(chosen[i::3], rejected[i::3], weights[i::3]) for i in range(3))
    assert expected_calibration_error(parts) == pytest.approx(expected_calibration_error(whole))
    assert sum(m.weight for name, m in whole.items() if name.startswith(PREFIX)) == pytest.approx(weights.sum().item())


def test_nothing_counted_is_not_a_number():
    metrics = calibration_metrics(*pairs([]), torch.ones(0))
    assert math.isnan(expected_calibration_error(metrics))
