"""Cut by SVD: the best of a rank, by a share of the energy, with the error that whole matrices show."""

from __future__ import annotations

import pytest
import torch
from tests.adapters.updates import SHAPES, delta, lora, relative

from cairn.adapters.combine import combine
from cairn.adapters.compress import prune
from cairn.errors import AdapterError

pytestmark = pytest.mark.unit

Q, V, DOWN = SHAPES


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_the_cut_is_the_nearest_of_its_rank(rank: int) -> None:
    whole = lora(1, {Q: 6, V: 2, DOWN: 8}, scaling=0.7)
    pruned = prune(whole, rank=rank)
    for path in SHAPES:
        sigma = torch.linalg.svdvals(delta(whole, path))
        best = float(sigma[rank:].norm() / sigma.norm())
        assert relative(delta(pruned.weights, path), delta(whole, path)) == pytest.approx(best, abs=1e-6)
        assert pruned.error.modules[path] == pytest.approx(best, abs=1e-6)
        assert pruned.weights.layers[path][0].shape[0] <= rank
    assert 0 < pruned.error.total < 1


def test_a_module_of_that_rank_stays_bit_for_bit() -> None:
    whole = lora(1, {Q: 6, V: 2})
    pruned = prune(whole, rank=4).weights
    assert all(torch.equal(pruned.layers[V][i], whole.layers[V][i]) for i in (0, 1))
    assert (pruned.scaling[V], pruned.scaling[Q]) == (whole.scaling[V], 1.0)


@pytest.mark.parametrize("energy", [0.5, 0.9, 0.999])
def test_a_share_of_the_energy_gives_the_smallest_rank_that_keeps_it(energy: float) -> None:
    whole = lora(1, 8)
    pruned = prune(whole, energy=energy)
    for path in SHAPES:
        squares = torch.linalg.svdvals(delta(whole, path)).square()
        rank = pruned.weights.layers[path][0].shape[0]
        assert squares[:rank].sum() >= energy * squares.sum() * (1 - 1e-9)
        assert squares[: rank - 1].sum() < energy * squares.sum()
    assert pruned.error.total <= (1 - energy) ** 0.5 + 1e-6


def test_what_was_put_together_needlessly_is_found() -> None:
    one = lora(1)
    doubled = combine((one, one), (0.5, 0.5)).weights
    assert doubled.rank == 8
    pruned = prune(doubled, energy=1.0 - 1e-10)
    assert pruned.weights.rank == 4
    assert pruned.error.total < 1e-6


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "one of them"),
        ({"rank": 2, "energy": 0.9}, "one of them"),
        ({"rank": 0}, "rank 0 is not above 0"),
        ({"energy": 1.5}, "energy 1.5"),
    ],
)
def test_a_wish_that_is_none_is_refused(settings: dict[str, float], reason: str) -> None:
    with pytest.raises(AdapterError, match=reason):
        prune(lora(1), **settings)  # type: ignore[arg-type]
