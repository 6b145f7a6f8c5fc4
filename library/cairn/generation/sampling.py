"""From logits to a token, row by row: greedy, temperature, top-k, nucleus; a seed of the request's own.

Each row draws from its own random generator, so what a request answers with a seed does not depend on who else is
in the batch. Order as everywhere: temperature, then top-k, then top-p (Holtzman et al. 2020, nucleus sampling).
Cost: greedy rows share one argmax; a sampled row costs a softmax, and a sort only where top-p asks for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cairn.generation.request import Request, TokenLogprob


def random_source(request: Request) -> torch.Generator | None:
    """The request's own random generator; None for greedy requests."""
    if request.temperature == 0:
        return None
    source = torch.Generator()
    if request.seed is None:
        source.seed()
    else:
        source.manual_seed(request.seed)
    return source


def choose(logits: torch.Tensor, requests: Sequence[Request], sources: Sequence[torch.Generator | None]) -> list[int]:
    """One token a row. `logits` float32 [rows, vocabulary], finite."""
    tokens: list[int] = logits.argmax(-1).tolist()
    for row, (request, source) in enumerate(zip(requests, sources, strict=True)):
        if source is not None:
            tokens[row] = draw(logits[row].cpu(), request, source)
    return tokens


def draw(logits: torch.Tensor, request: Request, source: torch.Generator) -> int:
    """One token from `logits` [vocabulary] by the request's temperature, top_k and top_p."""
    candidates = None
    if 0 < request.top_k < len(logits):
        logits, candidates = torch.topk(logits, request.top_k)
    # The largest logit is subtracted first: a tiny temperature must not overflow.
    probabilities = torch.softmax((logits - logits.max()) / request.temperature, dim=-1)
    if request.top_p < 1:
        probabilities, order = torch.sort(probabilities, descending=True, stable=True)
        candidates = order if candidates is None else candidates[order]
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= request.top_p, 0.0)
    place = int(torch.multinomial(probabilities, 1, generator=source))
    return place if candidates is None else int(candidates[place])


def logprob_of(logits: torch.Tensor, token: int, *, alternatives: int, tokenizer: Any) -> TokenLogprob:
    """The token's natural log-probability under `logits` float32 [vocabulary], with the likeliest alternatives."""
    logprobs = torch.log_softmax(logits, dim=-1)

    def entry(index: int, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        text = tokenizer.decode([index], clean_up_tokenization_spaces=False)
        return TokenLogprob(index, text, float(logprobs[index]), top)

    best = torch.topk(logprobs, alternatives).indices.tolist() if alternatives else []
    return entry(token, tuple(entry(index) for index in best))
