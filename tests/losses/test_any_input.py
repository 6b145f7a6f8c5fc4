"""Whatever finite log-probabilities come, every loss and every gradient in fp32 is finite."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.losses.calibration import calibration_metrics, expected_calibration_error
from cairn.losses.judgement import kto
from cairn.losses.preference import VARIANTS
from cairn.losses.ranking import bradley_terry, order_metrics
from cairn.losses.reference_free import cpo, orpo, simpo

pytestmark = pytest.mark.unit

few = settings(max_examples=25, deadline=None, derandomize=True, database=None)
numbers = st.floats(-1e5, 1e5, width=32)
log_probabilities = st.floats(-1e5, 0.0, width=32)


def pairs(values: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[float, float]]]:
    return st.lists(st.tuples(values, values), min_size=1, max_size=8)


def leaves(rows: list[tuple[float, float]]) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.tensor(rows, dtype=torch.float32).unbind(1)
    return first.clone().requires_grad_(), second.clone().requires_grad_()


def check_finite(loss: torch.Tensor, *inputs: torch.Tensor) -> None:
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    for gradient in torch.autograd.grad(loss.sum(), inputs):
        assert gradient.isfinite().all()


@few
@given(rows=pairs(numbers), beta=st.floats(0.01, 5.0), s=st.floats(0.01, 0.49), delta=st.floats(-100, 100))
def test_preference(rows, beta, s, delta):
    for variant in VARIANTS.values():
        d_c, d_r = leaves(rows)
        options = {name: {"label_smoothing": s, "delta": delta}[name] for name in variant.options}
        check_finite(variant(d_c, d_r, beta=beta, **options), d_c, d_r)


@few
@given(rows=pairs(log_probabilities), tokens=st.integers(1, 5000), beta=st.floats(0.01, 5.0))
def test_reference_free(rows, tokens, beta):
    chosen, rejected = leaves(rows)
    n_c, n_r = torch.full((len(rows),), tokens), torch.ones(len(rows), dtype=torch.long)
    for n in ((n_c, n_r), (n_r, n_c)):
        check_finite(orpo(chosen, rejected, *n, beta=beta), chosen, rejected)
        check_finite(simpo(chosen, rejected, *n, beta=beta, gamma=1.0, label_smoothing=0.1), chosen, rejected)
        check_finite(cpo(chosen, rejected, n[0], beta=beta), chosen, rejected)


@few
@given(rows=pairs(numbers), baseline=st.floats(0, 1e4), beta=st.floats(0.01, 5.0))
def test_judgement(rows, baseline, beta):
    good, bad = leaves(rows)
    judged = torch.tensor([True] * len(rows) + [False] * len(rows))
    check_finite(kto(torch.cat([good, bad]), judged, baseline=baseline, beta=beta), good, bad)


@few
@given(rows=pairs(numbers), margin=st.floats(-10, 10))
def test_ranking_and_calibration(rows, margin):
    better, worse = leaves(rows)
    check_finite(bradley_terry(better, worse, margin=margin, centring=0.01), better, worse)
    weights = torch.ones(len(rows))
    metrics = order_metrics(better, worse, weights) | calibration_metrics(better, worse, weights)
    assert all(metric.weight > 0 and metric.value == metric.value for metric in metrics.values())
    assert 0.0 <= metrics["accuracy"].value <= 1.0
    assert 0.0 <= expected_calibration_error(metrics) <= 1.0
