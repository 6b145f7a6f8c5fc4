"""Rolling windows: how a document of any length is scored so that each token is scored exactly once.

The rule of the Pile's own code (`get_rolling_token_windows` of lm_perplexity, paper appendix E.2): the prefix token is
the context of the first token and is not scored; each later window begins with `context` tokens already scored; the
last, partial window is moved back so that it is full too, and scores only what is left.
Cost: with `context=1` one forward position per token, plus at most one window more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cairn.errors import UserError


class Window(NamedTuple):
    """`inputs`: what the model sees. `targets`: what its last `len(targets)` positions are to predict."""

    inputs: list[int]
    targets: list[int]


def rolling_windows(tokens: Sequence[int], *, prefix_token: int, window: int, context: int = 1) -> Iterator[Window]:
    """The windows of one document; the targets of all of them, one after the other, are `tokens`.

    `window` is the number of inputs at most, `context` of how many of them (at least 1) are not scored by a later
    window. Raises UserError where 1 ≤ context ≤ window does not hold.
    """
    if not 1 <= context <= window:
        raise UserError(
            f"a window of {window} tokens with {context} of context", next_step="choose 1 ≤ context ≤ window"
        )
    tokens = list(tokens)
    done = min(window, len(tokens))
    if done:
        yield Window([prefix_token, *tokens[: done - 1]], tokens[:done])
    while done < len(tokens):
        end = min(done + window - context + 1, len(tokens))
        yield Window(tokens[end - window - 1 : end - 1], tokens[done:end])
        done = end
