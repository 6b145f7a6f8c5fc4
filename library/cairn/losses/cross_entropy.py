"""Cross-entropy of the next token, in nats, always computed in fp32.

In bf16 a log-softmax over 50,000 entries loses two of three digits, so logits are cast up first: one fp32 copy of the
logits that are wanted, which is why only the weighted positions should come here.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def token_nll(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """−log p(label) in nats, fp32 [n] (float64 for float64 logits).

    logits: [n, vocabulary] in any float dtype. labels: int64 [n], each within the vocabulary. Closed form:
    logsumexp(logits) − logits[label].
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide, labels, reduction="none")


def weighted_sum(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Σ values·weights as a scalar connected to the graph, also where nothing is weighted. Both [n]."""
    return (values * weights.to(values.dtype)).sum()
