"""Many adapters over one base: a layer whose rows each add their own adapter's change.

Every adapted layer holds the parts of all resident adapters stacked (`cairn.adapters.linear_change`), and gathers each
row's by its slot (slot 0 is the base, which changes nothing). A step takes the parts that some row of it needs and no
other: with LoRAs alone its cost depends on the largest rank in the batch, not on how many are resident or how they
differ. A step of base rows only pays nothing; a step of one adapter, or scoring with one, gathers nothing. Which slot
a row uses is data in one `Routing` shared by all layers: no hooks, one thread.

Memory: slots × bucket × (in + out) numbers per adapted linear; the bucket is the largest resident rank, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cairn.adapters.linear_change import ROWS, TOKENS, TURN, LinearChange, neutral, replaced, shared_out, turned
from cairn.errors import AdapterError
from cairn.models.invocation import invoked, where_active

RANK_BUCKETS = (8, 16, 32, 64, 128, 256)
NOTHING: frozenset[str] = frozenset()


def bucket(rank: int) -> int:
    """The smallest bucket that holds `rank`; 0 for none."""
    return next((size for size in RANK_BUCKETS if size >= rank), rank) if rank else 0


class Routing:
    """The slot of each row of the step that runs now; `needs` are the parts beside B·A that each slot has, `invocations`
    the tokens that some wait for. `active`: where B·A acts, bool [rows, columns]; none: everywhere."""

    def __init__(self) -> None:
        self.needs: dict[int, frozenset[str]] = {}
        self.invocations: dict[int, tuple[int, ...]] = {}
        self.active: torch.Tensor | None = None
        self.is_told = False
        self.slots: tuple[int, ...] = ()
        self.rank = 0
        self.parts = NOTHING
        self.index: torch.Tensor | None = None

    @property
    def idle(self) -> bool:
        """Only base rows, or no step at all."""
        return self.rank == 0 and not self.parts

    @property
    def single(self) -> bool:
        """All rows use one slot."""
        return self.index is None

    def pick(self, stack: torch.Tensor) -> torch.Tensor:
        """Each row's own of a stack [slots, …]; one for all where they share it."""
        return stack[self.slots[0]][None] if self.index is None else stack[self.index]

    def look(self, module: Any, arguments: Any, keywords: dict[str, Any]) -> None:
        """The model's pre-hook: of whole sequences with one adapter it is found where that acts, unless it is told."""
        invocation = self.invocations.get(self.slots[0]) if self.slots and self.single else None
        if not self.is_told:
            self.active = (
                None if invocation is None else invoked(keywords["input_ids"], keywords.get("position_ids"), invocation)
            )

    @contextmanager
    def using(
        self, slots: Sequence[int], *, rank: int, device: Any, active: torch.Tensor | None = None
    ) -> Iterator[None]:
        """Route the rows of a batch to `slots`; one slot alone stands for any number of rows. `active`: of rows that are
        read piece by piece."""
        self.active, self.is_told = active, active is not None
        self.slots, self.rank = tuple(slots), bucket(rank) if any(slots) else 0
        self.parts = NOTHING.union(*(self.needs.get(slot, NOTHING) for slot in self.slots))
        self.index = torch.tensor(self.slots, device=device) if len(set(slots)) > 1 else None
        try:
            yield
        finally:
            self.slots, self.rank, self.parts, self.index = (), 0, NOTHING, None
            self.active, self.is_told = None, False


class SlotLinear(nn.Module):
    """`base`, a linear or a norm, plus the change of each row's adapter; `stacks` are A [slots, in, r] and B [slots, r, out],
    `parts` the others by name, [slots, …].

    dtype: that of the activations; a quantised base has another.
    """

    def __init__(self, base: nn.Module, *, slots: int, routing: Routing, dtype: torch.dtype) -> None:
        super().__init__()
        self.base, self.dtype = base, dtype
        self.slots, self.routing = slots, routing
        self.in_features, self.out_features = features(base)
        self.stacks: tuple[torch.Tensor, torch.Tensor] | None = None
        self.parts: dict[str, torch.Tensor] = {}

    @property
    def weight(self) -> Any:
        """The frozen weight; some models look at it."""
        return self.base.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, in] → […, out]; the leading dimensions are rows × anything, rows first."""
        routing = self.routing
        active = {name: self.parts[name] for name in routing.parts & self.parts.keys()} if routing.parts else {}
        output: torch.Tensor = self._around(hidden, active) if active else self.base(hidden)
        if routing.rank == 0 or self.stacks is None:
            return output
        down, up = self.stacks
        rank = min(routing.rank, down.shape[2])
        if routing.single:
            slot = routing.slots[0]
            update = (hidden @ down[slot, :, :rank]) @ up[slot, :rank]
        else:
            rows = self._rows(hidden)
            update = torch.bmm(torch.bmm(rows, down[routing.index, :, :rank]), up[routing.index, :rank])
            update = update.view(output.shape)
        return output + (update if routing.active is None else where_active(update, routing.active))

    def _around(self, hidden: torch.Tensor, active: dict[str, torch.Tensor]) -> torch.Tensor:
        """S·(W·T·x + b) + c."""
        turns = [stack for name, stack in active.items() if name.startswith(TURN)]
        rows = self._rows(hidden)
        for stack in turns:
            rows = turned(rows, self.routing.pick(stack))
        output: torch.Tensor = self.base(rows.view(hidden.shape) if turns else hidden)
        others = {name: self.routing.pick(s)[:, None] for name, s in active.items() if not name.startswith(TURN)}
        return shared_out(self._rows(output), others).view(output.shape) if others else output

    def _rows(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, anything, features]; all rows as one where they use one slot."""
        count = 1 if self.routing.single else len(self.routing.slots)
        if (hidden.numel() // hidden.shape[-1]) % count:
            raise RuntimeError(f"a layer gets {tuple(hidden.shape)} for {count} rows: it regroups tokens")
        return hidden.reshape(count, -1, hidden.shape[-1])

    def reserve(self, rank: int, parts: Iterable[str] = ()) -> None:
        """Room for `rank` and for `parts` in every slot; keeps what is there, and gives back what is no longer needed."""
        self.parts = {part: self.parts[part] if part in self.parts else self._neutral(part) for part in parts}
        old = self.stacks
        if rank == 0:
            self.stacks = None
        elif old is None or old[0].shape[2] != rank:
            device = self.weight.device
            down = torch.zeros(self.slots, self.in_features, rank, dtype=self.dtype, device=device)
            up = torch.zeros(self.slots, rank, self.out_features, dtype=self.dtype, device=device)
            if old is not None:
                kept = min(rank, old[0].shape[2])
                down[:, :, :kept] = old[0][:, :, :kept]
                up[:, :kept] = old[1][:, :kept]
            self.stacks = (down, up)

    def _neutral(self, part: str) -> torch.Tensor:
        one = neutral(part, self.in_features, self.out_features)
        one = one.to(self.dtype if one.is_floating_point() else one.dtype).to(self.weight.device)
        return one.expand(self.slots, *one.shape).clone()

    def write(self, slot: int, change: LinearChange) -> None:
        """Fill `slot` with what fits this layer; there is room."""
        self.clear(slot)
        if change.down is not None and change.up is not None:
            assert self.stacks is not None
            down, up = self.stacks
            down[slot, :, : change.rank] = change.down.T.to(down.dtype)
            up[slot, : change.rank] = change.up.T.to(up.dtype)
        for name, part in change.parts().items():
            self.parts[name][slot] = part.to(self.parts[name].dtype)

    def clear(self, slot: int) -> None:
        """Make `slot` the base again."""
        for stack in self.stacks or ():
            stack[slot] = 0
        for name, stack in self.parts.items():
            stack[slot] = neutral(name, self.in_features, self.out_features).to(stack.dtype)


class SlotEmbedding(SlotLinear):
    """An embedding some of whose rows are other ones for the rows of a batch whose adapter trained them."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[rows, columns] → [rows, columns, out]; one row of any number of columns where all use one slot."""
        output: torch.Tensor = self.base(tokens)
        count = 1 if self.routing.single else len(self.routing.slots)
        asked, found = tokens.reshape(count, -1), output.reshape(count, -1, self.out_features)
        for name in self.routing.parts & self.parts.keys():
            if name.startswith(TOKENS):
                others = self.parts[ROWS + name.removeprefix(TOKENS)]
                found = replaced(found, asked, self.routing.pick(self.parts[name]), self.routing.pick(others))
        return found.view(output.shape)


def features(module: nn.Module) -> tuple[int, int]:
    """(in, out) of a linear layer or a norm, (tokens, out) of an embedding; AdapterError for any other module."""
    weight: Any = getattr(module, "weight", None)
    if isinstance(module, nn.Embedding):
        return module.num_embeddings, module.embedding_dim
    if hasattr(module, "in_features") and hasattr(module, "out_features"):
        return int(module.in_features), int(module.out_features)  # type: ignore[arg-type]
    if type(module).__name__ == "Conv1D":
        rows, columns = weight.shape
        return int(rows), int(columns)
    if "norm" in type(module).__name__.lower() and weight is not None:
        return int(weight.shape[0]), int(weight.shape[0])
    raise AdapterError(
        f"a {type(module).__name__} cannot carry an adapter here", next_step="train with targets that are linear layers"
    )
