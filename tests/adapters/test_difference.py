"""What two adapters share: norms, angles and cosines, against whole matrices and by construction."""

from __future__ import annotations

import math

import pytest
import torch
from tests.adapters.updates import SHAPES, delta, lora, relative

from cairn.adapters.combine import combine
from cairn.adapters.difference import difference
from cairn.adapters.plain import plain_lora
from cairn.errors import AdapterError

pytestmark = pytest.mark.unit

Q, V, DOWN = SHAPES


def test_every_figure_is_that_of_whole_matrices() -> None:
    one, other = lora(1, 4), lora(2, {Q: 3, V: 2, DOWN: 8}, scaling=0.4)
    found = difference(one, other)
    for module in found.modules:
        ours, theirs = delta(one, module.path), delta(other, module.path)
        assert module.norm == pytest.approx(float(ours.norm()))
        assert module.other_norm == pytest.approx(float(theirs.norm()))
        assert module.relative == pytest.approx(relative(theirs, ours))
        assert module.cosine == pytest.approx(float((ours * theirs).sum() / (ours.norm() * theirs.norm())))
        columns = [torch.linalg.svd(m)[0][:, :r] for m, r in ((ours, module.rank), (theirs, module.other_rank))]
        overlap = float((columns[0].T @ columns[1]).square().sum()) / min(module.rank, module.other_rank)
        assert module.overlap_out == pytest.approx(overlap)
    assert found.norm == pytest.approx(math.hypot(*(float(delta(one, path).norm()) for path in SHAPES)))


def test_an_adapter_is_no_way_from_itself() -> None:
    found = difference(lora(1), lora(1))
    assert (found.relative, found.cosine) == pytest.approx((0.0, 1.0), abs=1e-12)
    for module in found.modules:
        assert (module.overlap_out, module.overlap_in) == pytest.approx((1.0, 1.0))
        assert module.largest_angle == pytest.approx(0.0, abs=1e-4)


def test_a_part_lies_in_the_whole_and_apart_is_apart() -> None:
    one, other = lora(1, {Q: 4}), lora(2, {Q: 3})
    whole = combine((one, other), (1.0, 1.0)).weights
    (module,) = difference(one, whole).modules
    assert (module.overlap_out, module.overlap_in) == pytest.approx((1.0, 1.0), abs=1e-6)
    identity = torch.eye(64)
    apart = [plain_lora({Q: (identity[i : i + 2], identity[:, i : i + 2])}) for i in (0, 2)]
    (module,) = difference(*apart).modules
    assert (module.overlap_out, module.overlap_in, module.cosine) == pytest.approx((0.0, 0.0, 0.0))
    assert module.smallest_angle == pytest.approx(90.0)


def test_a_module_that_one_leaves_alone_has_no_angles() -> None:
    found = difference(lora(1, {Q: 4, V: 2}), lora(2, {Q: 3, DOWN: 8}))
    by_path = {module.path: module for module in found.modules}
    assert set(by_path) == set(SHAPES)
    assert (by_path[V].other_rank, by_path[V].other_norm, by_path[V].cosine) == (0, 0.0, None)
    assert by_path[Q].cosine is not None
    untrained = plain_lora({Q: (torch.randn(4, 64), torch.zeros(64, 4))})
    (module,) = difference(untrained, lora(1, {Q: 4})).modules
    assert (module.norm, module.overlap_out) == (0.0, None)


def test_other_shapes_are_refused() -> None:
    narrow = plain_lora({Q: (torch.randn(4, 32), torch.randn(64, 4))})
    with pytest.raises(AdapterError, match="compare adapters of one base"):
        difference(lora(1), narrow)
