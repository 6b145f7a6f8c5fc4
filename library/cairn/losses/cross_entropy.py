"""Cross-entropy of the next token, in nats, always computed in fp32.

In bf16 a log-softmax over 50,000 entries loses two of three digits, so logits are cast up first: one fp32 copy of the
logits that are wanted, which is why only the weighted positions should come here.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from cairn.losses.precision import widen


def token_nll(logits: torch.Tensor, labels: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """−log p(label) in nats, fp32 [n] (float64 for float64 logits).

    logits: [n, vocabulary] in any float dtype. labels: int64 [n], each within the vocabulary. Closed form:
    logsumexp(logits) − logits[label].

    With label smoothing s (Szegedy et al. 2016): (1 − s)·(−log p(label)) + s·mean over the vocabulary of −log p, the
    label counted among the vocabulary. This is torch's convention and that of `LabelSmoother` in transformers; no
    longer a log-likelihood, so bits per byte take s = 0. Logits of −inf have no finite smoothed loss.

    Raises ValueError unless 0 ≤ s < 1.
    """
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label_smoothing is {label_smoothing}: take 0 ≤ label_smoothing < 1; at 1 no label counts")
    return F.cross_entropy(widen(logits), labels, reduction="none", label_smoothing=label_smoothing)


def weighted_sum(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Σ values·weights as a scalar connected to the graph, also where nothing is weighted. Both [n]."""
    return (values * weights.to(values.dtype)).sum()
