"""The precision that losses are computed in: fp32 at least, float64 where it is given.

bf16 has eight bits: a log-probability of −300 nats is known to the nearest nat, while a preference loss turns on
tenths. Costs a copy where the tensor is narrower than fp32, nothing otherwise.
"""

from __future__ import annotations

import torch


def widen(values: torch.Tensor) -> torch.Tensor:
    """`values` in fp32, float64 kept; any shape and dtype."""
    return values if values.dtype == torch.float64 else values.float()
