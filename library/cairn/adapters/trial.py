"""A method after some steps of AdamW over a small base: what `cairn.adapters.proof` looks at."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cairn.adapters.method import Method
from cairn.adapters.specimens import probe_tokens

Base = Callable[[], Any]
"""Makes the base, the same each time."""
RATE = 3e-3


@dataclass(frozen=True)
class Trial:
    """The adapted model with its optimizer; `losses` before the first step and after each."""

    model: Any
    optimizer: torch.optim.Optimizer
    losses: list[float]

    def logits(self) -> torch.Tensor:
        """Of the probe, in evaluation mode."""
        return logits_of(self.model.eval())


def train(method: Method, base: Base, steps: int, *, resumed: Trial | None = None) -> Trial:
    """After `steps` steps on fixed tokens, all of them or those that `resumed` has not taken yet."""
    torch.manual_seed(1)
    model = method.attach(base())
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(named.values(), lr=RATE)
    first = 0
    if resumed is not None:
        first = len(resumed.losses) - 1
        optimizer.load_state_dict(copy.deepcopy(resumed.optimizer.state_dict()))
        before = dict(resumed.model.named_parameters())
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.copy_(before[name])
    losses = [_loss(model)]
    for step in range(first, steps):
        torch.manual_seed(step)  # as the training loop does: some methods draw noise
        optimizer.zero_grad()
        model.train()(input_ids=probe_tokens(), labels=probe_tokens()).loss.backward()
        optimizer.step()
        losses.append(_loss(model))
    return Trial(model, optimizer, losses)


def logits_of(model: Any) -> torch.Tensor:
    """[2, tokens, vocabulary] of the probe."""
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=probe_tokens()).logits
    return logits


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest, relative to the largest that is expected."""
    return float((found - expected).abs().max() / expected.abs().max())


@torch.no_grad()
def _loss(model: Any) -> float:
    tokens = probe_tokens()
    return float(model.eval()(input_ids=tokens, labels=tokens).loss)
