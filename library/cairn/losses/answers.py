"""From tokens to answers: sums and means of log-probabilities, plain or desensitised to length.

Answers of many rows lie in one flat tensor with the index of each token's answer beside it, so that packing, order
and padding are nobody's concern here. The only division by a length in the preference losses is in this file.
"""

from __future__ import annotations

import torch

from cairn.losses.precision import widen


def answer_sums(values: torch.Tensor, answer: torch.Tensor, answers: int) -> torch.Tensor:
    """Σ of each answer's values, fp32 [answers] (float64 kept), 0 for an answer without tokens.

    values: [n], one a token. answer: int64 [n], whose token it is, 0 ≤ answer < `answers`, in any order.
    """
    wide = widen(values)
    return wide.new_zeros(answers).index_add(0, answer, wide)


def answer_lengths(answer: torch.Tensor, answers: int) -> torch.Tensor:
    """The number of tokens of each answer, int64 [answers]."""
    return torch.bincount(answer, minlength=answers)


def token_means(sums: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """sums / tokens, both [answers]: the mean log-probability of an answer's token.

    Raises ValueError where an answer has no token: its mean is not a number, and would make the weights so too.
    """
    empty = (tokens < 1).nonzero().flatten().tolist()
    if empty:
        raise ValueError(f"answers {empty[:5]} have no token: a mean over nothing; leave such answers out before")
    return widen(sums) / tokens


def positions_within(answer: torch.Tensor) -> torch.Tensor:
    """The position of each token within its answer, int64 [n], from 0.

    answer: int64 [n]. The tokens of one answer are in reading order; answers may come in any order, even interleaved.
    """
    order = torch.argsort(answer, stable=True)
    lengths = torch.bincount(answer)
    starts = lengths.cumsum(0) - lengths
    positions = torch.empty_like(answer)
    positions[order] = torch.arange(len(answer), device=answer.device) - starts[answer[order]]
    return positions


def desensitised_weights(answer: torch.Tensor, shared_tokens: torch.Tensor, *, alpha: float) -> torch.Tensor:
    """LD-DPO's weight of each token, fp32 [n]: 1 for the first `shared_tokens` of its answer, `alpha` for the rest.

    Liu et al. 2024 (arXiv 2409.06411): lp = Σ over the first min(n_c, n_r) tokens + alpha · Σ over the rest.
    answer: int64 [n], in reading order. shared_tokens: int64 [answers], min(n_c, n_r) of the answer's pair.
    `answer_sums(logps * weights, …)`, for the policy and the reference alike: else the loss does not start at ln 2.
    alpha = 1 is DPO; alpha = 0 compares answers up to the length of the shorter.

    Raises ValueError unless 0 ≤ alpha ≤ 1.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha is {alpha}: LD-DPO takes 0 ≤ alpha ≤ 1, the share of what only the longer answer has")
    beyond = positions_within(answer) >= shared_tokens[answer]
    return torch.ones_like(answer, dtype=torch.float32).masked_fill(beyond, alpha)
