"""The stream of rows: every row once an epoch, the same whoever takes it, and only of the data it belongs to."""

from __future__ import annotations

import pytest

from cairn.data.cursor import Cursor, share, take
from cairn.data.mixture import Mixture
from cairn.errors import UserError

pytestmark = pytest.mark.unit


def mixture(*sizes: int) -> Mixture:
    return Mixture.of(sizes, fingerprint="f")


def test_taking_crosses_epochs_and_each_row_comes_once_an_epoch() -> None:
    rows = mixture(6, 4)
    cursor, taken = Cursor(seed=3), []
    for count in (4, 4, 4, 25, 3):
        indices, cursor = take(rows, cursor, count)
        assert len(indices) == count
        taken.extend(indices)
    assert taken == [i for epoch in range(4) for i in rows.order(3, epoch).tolist()]
    assert cursor == Cursor(3, 3, 10, "f")
    assert take(rows, Cursor(**cursor.plain()), 1)[0] == rows.order(3, 4).tolist()[:1]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_what_a_step_trains_on_does_not_depend_on_the_workers(world_size: int) -> None:
    rows = mixture(7)
    cursor = alone = Cursor(seed=0)
    for _ in range(5):
        expected, alone = take(rows, alone, 12)
        indices, cursor = take(rows, cursor, 12)
        shares = [share(indices, rank=rank, world_size=world_size) for rank in range(world_size)]
        assert sorted(i for part in shares for i in part) == sorted(expected)
        assert len({len(part) for part in shares}) == 1
    assert cursor == alone


def test_a_cursor_of_other_data_is_refused() -> None:
    with pytest.raises(UserError, match="the data changed"):
        take(mixture(3), Cursor(0, fingerprint="other"), 1)
    with pytest.raises(UserError, match="no rows"):
        take(mixture(0), Cursor(0), 1)
