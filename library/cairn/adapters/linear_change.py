"""What an adapter does to one layer, as data that can differ from row to row of a batch: W·x + b becomes

    y = S·(W·T·x + b) + B·A·x + c

T turns the inputs block by block (OFT; in blocks of one, IA³ on inputs), S scales the outputs and gives each a share
of one other (IA³, DoRA, RoAd), B·A is a LoRA and c a bias. A part that is not there changes nothing. Memory: as much as
the parts; a turn in blocks of b costs as much as a LoRA of rank b · in / (in + out).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from cairn.adapters.files import LoraWeights
from cairn.adapters.soft_prompts import SoftPrompt
from cairn.errors import AdapterError
from cairn.models.invocation import Invocation
from cairn.models.twin import twin

TURN, TOKENS, ROWS = "turn/", "tokens/", "rows/"
"""What the names of these parts begin with; the size of the blocks follows, or the number of tokens."""


@dataclass(frozen=True)
class LinearChange:
    """`down` A [rank, in] and `up` B [out, rank] with the scaling inside; `turn` [in / b, b, b], by which the blocks of x
    are multiplied from the right; S·z is `scale` ∘ z + `share` ∘ z[`partner`], [out] each; `bias` c [out]. Of an
    embedding: the `tokens` [n] that have other `rows` [n, out]."""

    down: torch.Tensor | None = None
    up: torch.Tensor | None = None
    turn: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    share: torch.Tensor | None = None
    partner: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    tokens: torch.Tensor | None = None
    rows: torch.Tensor | None = None

    @property
    def rank(self) -> int:
        """Of B·A; 0 without."""
        return 0 if self.down is None else self.down.shape[0]

    def parts(self) -> dict[str, torch.Tensor]:
        """What there is beside B·A, by name."""
        turns = {} if self.turn is None else {f"{TURN}{self.turn.shape[1]}": self.turn}
        if self.tokens is not None and self.rows is not None:
            return {f"{TOKENS}{len(self.tokens)}": self.tokens, f"{ROWS}{len(self.tokens)}": self.rows}
        named = {name: getattr(self, name) for name in ("scale", "share", "partner", "bias")}
        return turns | {name: value for name, value in named.items() if value is not None}

    def misfit(self, inputs: int, outputs: int) -> str:
        """What keeps it off a layer of that shape; empty when it fits."""
        if self.tokens is not None and self.rows is not None:
            fits = self.rows.shape[1] == outputs and bool(((self.tokens >= 0) & (self.tokens < inputs)).all())
            return "" if fits else f"has {inputs} tokens of {outputs} numbers, the adapter others"
        ends = [] if self.down is None or self.up is None else [(self.down.shape[1], self.up.shape[0])]
        turned = inputs if self.turn is None else self.turn.shape[0] * self.turn.shape[1]
        sizes = [(turned, part.shape[0]) for name, part in self.parts().items() if not name.startswith(TURN)]
        ends += sizes or [(turned, outputs)]
        wrong = next((end for end in ends if end != (inputs, outputs)), None)
        return f"goes from {inputs} to {outputs}, the adapter from {wrong[0]} to {wrong[1]}" if wrong else ""


@dataclass(frozen=True)
class AdapterChanges:
    """What an adapter does to a model: path in the bare model → the change of that layer; or virtual tokens, `prompt`.
    `method`: who says so. `invocation`: tokens from whose last occurrence on its B·A act; none: everywhere."""

    layers: Mapping[str, LinearChange]
    method: str = "lora"
    prompt: SoftPrompt | None = None
    invocation: tuple[int, ...] = ()
    rank: int = field(init=False)

    def __post_init__(self) -> None:
        """The largest rank of its layers."""
        object.__setattr__(self, "rank", max((change.rank for change in self.layers.values()), default=0))

    @property
    def parts(self) -> frozenset[str]:
        """Names of the parts that some layer has."""
        return frozenset(name for change in self.layers.values() for name in change.parts())


def as_changes(weights: LoraWeights | AdapterChanges) -> AdapterChanges:
    """A LoRA is the simplest case."""
    if isinstance(weights, AdapterChanges):
        return weights
    return AdapterChanges(
        {path: LinearChange(down=a, up=b.float() * weights.scaling[path]) for path, (a, b) in weights.layers.items()}
    )


def neutral(part: str, inputs: int, outputs: int) -> torch.Tensor:
    """The part of that name which changes nothing, for a layer of that shape."""
    if part.startswith(TURN):
        size = int(part.removeprefix(TURN))
        return torch.eye(size).repeat(inputs // size, 1, 1)
    if part.startswith(TOKENS):
        return torch.full((int(part.removeprefix(TOKENS)),), -1)
    if part.startswith(ROWS):
        return torch.zeros(int(part.removeprefix(ROWS)), outputs)
    if part == "partner":
        return torch.arange(outputs)
    return torch.ones(outputs) if part == "scale" else torch.zeros(outputs)


def diagonal_blocks(matrix: torch.Tensor, size: int) -> torch.Tensor:
    """[n / size, size, size] of a block-diagonal matrix [n, n]."""
    count = matrix.shape[0] // size
    blocks = matrix.view(count, size, count, size).diagonal(dim1=0, dim2=2).movedim(-1, 0)
    if int(torch.count_nonzero(blocks)) != int(torch.count_nonzero(matrix)):
        raise AdapterError(f"the matrix does not fall into blocks of {size}", next_step="report it with the adapter")
    return blocks.contiguous()


def turned(rows: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """x [n, tokens, in] with its blocks turned by `blocks` [n or 1, in / b, b, b], of each n its own."""
    n, tokens, width = rows.shape
    size = blocks.shape[-1]
    if size == 1:
        return rows * blocks.reshape(blocks.shape[0], 1, width)
    split = rows.view(n, tokens, width // size, size).transpose(1, 2)
    return (split @ blocks).transpose(1, 2).reshape(n, tokens, width)


def replaced(rows: torch.Tensor, asked: torch.Tensor, tokens: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Embeddings [n, columns, out] of `asked` [n, columns], those of `tokens` [n or 1, k] from `others` [n or 1, k, out]."""
    same = asked[..., None] == tokens[:, None]
    return torch.where(same.any(-1, keepdim=True), same.to(others.dtype) @ others, rows)


def shared_out(rows: torch.Tensor, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """S·z + c of z [n, tokens, out]; `parts` by name, [n or 1, 1, out] each."""
    found = rows * parts["scale"] if "scale" in parts else rows
    if "share" in parts:
        found = found + parts["share"] * rows.gather(-1, parts["partner"].expand(rows.shape))
    return found + parts["bias"] if "bias" in parts else found


class ChangedLayer(nn.Module):
    """A layer with one change, for all rows alike."""

    def __init__(self, base: nn.Module, change: LinearChange, invocation: Invocation | None = None) -> None:
        super().__init__()
        self.base, self.change, self.invocation = base, change, invocation

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, in] → […, out]; of an embedding tokens [rows, columns] → [rows, columns, out]."""
        if self.change.tokens is not None and self.change.rows is not None:
            return replaced(self.base(hidden), hidden, self.change.tokens[None], self.change.rows[None])
        change, rows = self.change, hidden.reshape(1, -1, hidden.shape[-1])
        if change.turn is not None:
            rows = turned(rows, change.turn[None])
        output: torch.Tensor = self.base(rows.view(hidden.shape))
        others = {name: part for name, part in change.parts().items() if not name.startswith(TURN)}
        output = shared_out(output, {name: part.expand(output.shape) for name, part in others.items()})
        if change.down is not None and change.up is not None:
            update = hidden @ change.down.T @ change.up.T
            output = output + (update if self.invocation is None else self.invocation.of(update))
        return output


def changed(model: nn.Module, changes: AdapterChanges) -> nn.Module:
    """Another model over the numbers of `model`, with the adapter and nothing of PEFT."""
    again = twin(model)
    invocation = Invocation(changes.invocation) if changes.invocation else None
    if invocation is not None:
        again.register_forward_pre_hook(invocation.given, with_kwargs=True)
    for path, change in changes.layers.items():
        again.set_submodule(path, ChangedLayer(again.get_submodule(path), change, invocation))
    return again if changes.prompt is None else changes.prompt.over(again)
