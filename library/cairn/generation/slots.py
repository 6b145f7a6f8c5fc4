"""Many adapters over one base: a linear whose rows each add their own low-rank update.

Every adapted linear holds the A and B of all resident adapters stacked, and gathers each row's pair by its slot
(slot 0 is the base: zeros). The cost of a step depends on the largest rank in the batch, not on how many adapters
are resident. Scaling is folded into B. A step of base rows only pays nothing; a step of one adapter, or scoring
with one, gathers nothing. Which slot a row uses is data in one `Routing` shared by all layers: no hooks, one thread.

Memory: slots × bucket × (in + out) numbers per adapted linear; the bucket is the largest resident rank, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cairn.errors import AdapterError

RANK_BUCKETS = (8, 16, 32, 64, 128, 256)


def bucket(rank: int) -> int:
    """The smallest bucket that holds `rank`."""
    return next((size for size in RANK_BUCKETS if size >= rank), rank)


class Routing:
    """The slot of each row of the step that runs now."""

    def __init__(self) -> None:
        self.slots: tuple[int, ...] = ()
        self.rank = 0
        self.index: torch.Tensor | None = None

    @property
    def idle(self) -> bool:
        """Only base rows, or no step at all."""
        return self.rank == 0

    @property
    def single(self) -> bool:
        """All rows use one slot."""
        return self.index is None

    @contextmanager
    def using(self, slots: Sequence[int], *, rank: int, device: Any) -> Iterator[None]:
        """Route the rows of a batch to `slots`; one slot alone stands for any number of rows."""
        self.slots, self.rank = tuple(slots), bucket(rank) if any(slots) else 0
        self.index = torch.tensor(self.slots, device=device) if len(set(slots)) > 1 else None
        try:
            yield
        finally:
            self.slots, self.rank, self.index = (), 0, None


class SlotLinear(nn.Module):
    """`base` plus the low-rank update of each row's adapter; `stacks` are A [slots, in, r] and B [slots, r, out].

    dtype: that of the activations; a quantised base has another.
    """

    def __init__(self, base: nn.Module, *, slots: int, routing: Routing, dtype: torch.dtype) -> None:
        super().__init__()
        self.base, self.dtype = base, dtype
        self.slots, self.routing = slots, routing
        self.in_features, self.out_features = features(base)
        self.stacks: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def weight(self) -> Any:
        """The frozen weight; some models look at it."""
        return self.base.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, in] → […, out]; the leading dimensions are rows × anything, rows first."""
        output: torch.Tensor = self.base(hidden)
        if self.routing.idle or self.stacks is None:
            return output
        down, up = self.stacks
        rank = min(self.routing.rank, down.shape[2])
        if self.routing.single:
            slot = self.routing.slots[0]
            return output + (hidden @ down[slot, :, :rank]) @ up[slot, :rank]
        index = self.routing.index
        count = len(self.routing.slots)
        if (hidden.numel() // self.in_features) % count:
            raise RuntimeError(f"a layer gets {tuple(hidden.shape)} for {count} rows: it regroups tokens")
        rows = hidden.reshape(count, -1, self.in_features)
        update = torch.bmm(torch.bmm(rows, down[index, :, :rank]), up[index, :rank])
        return output + update.view(output.shape)

    def reserve(self, rank: int) -> None:
        """Room for `rank` in every slot; keeps what is there, and gives back what is no longer needed."""
        if rank == 0:
            self.stacks = None
            return
        old = self.stacks
        if old is not None and old[0].shape[2] == rank:
            return
        device = self.weight.device
        down = torch.zeros(self.slots, self.in_features, rank, dtype=self.dtype, device=device)
        up = torch.zeros(self.slots, rank, self.out_features, dtype=self.dtype, device=device)
        if old is not None:
            kept = min(rank, old[0].shape[2])
            down[:, :, :kept] = old[0][:, :, :kept]
            up[:, :kept] = old[1][:, :kept]
        self.stacks = (down, up)

    def write(self, slot: int, a: torch.Tensor, b: torch.Tensor, scaling: float) -> None:
        """Fill `slot` with A [r, in] and B [out, r]; there is room."""
        assert self.stacks is not None
        down, up = self.stacks
        self.clear(slot)
        down[slot, :, : a.shape[0]] = a.T.to(down.dtype)
        up[slot, : b.shape[1]] = (b.float() * scaling).T.to(up.dtype)

    def clear(self, slot: int) -> None:
        """Make `slot` the base again."""
        for stack in self.stacks or ():
            stack[slot] = 0


def features(module: nn.Module) -> tuple[int, int]:
    """(in, out) of a linear layer; AdapterError for any other module."""
    if hasattr(module, "in_features") and hasattr(module, "out_features"):
        return int(module.in_features), int(module.out_features)  # type: ignore[arg-type]
    if type(module).__name__ == "Conv1D":
        rows, columns = module.weight.shape  # type: ignore[misc]
        return int(rows), int(columns)
    raise AdapterError(
        f"a {type(module).__name__} cannot carry an adapter here", next_step="train with targets that are linear layers"
    )
