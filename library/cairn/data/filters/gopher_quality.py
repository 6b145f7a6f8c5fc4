"""Gopher's quality rules (Rae et al. 2021, arXiv 2112.11446, appendix A.1.1), with the paper's thresholds.

The paper leaves open what a word is; see `cairn.data.view`. Lines that are blank do not count. Cost: 6 % of the
tokenizer's time on the same text.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from cairn.config.section import Section
from cairn.data.filters.base import Fault, Filter
from cairn.data.view import View

ELLIPSES = ("...", "…")
BULLETS = ("•", "-")


class GopherQuality(Filter):
    """Drops what is too short or long, or does not read like sentences of English."""

    for_web = True

    class Config(Section):
        """Thresholds of the paper; where another language is wanted, change the stop words."""

        min_words: int = Field(50, ge=0, description="bare words at least (Gopher)")
        max_words: int = Field(100_000, ge=1, description="bare words at most (Gopher)")
        min_word_length: float = Field(3, ge=0, description="mean characters of a bare word at least (Gopher)")
        max_word_length: float = Field(10, gt=0, description="mean characters of a bare word at most (Gopher)")
        max_symbols: float = Field(0.1, ge=0, description="# per word at most, and ellipses per word (Gopher)")
        max_bullets: float = Field(0.9, ge=0, le=1, description="share of lines that begin with • or - (Gopher)")
        max_ellipses: float = Field(0.3, ge=0, le=1, description="share of lines that end in an ellipsis (Gopher)")
        min_alphabetic: float = Field(0.8, ge=0, le=1, description="share of words with a letter at least (Gopher)")
        min_stop_words: int = Field(2, ge=0, description="how many different stop words at least (Gopher)")
        stop_words: tuple[str, ...] = Field(
            ("the", "be", "to", "of", "and", "that", "have", "with"), description="the stop words (Gopher)"
        )

    def faults(self, view: View) -> Iterator[Fault]:
        """In the order of their cost."""
        limits, bare = self.config, view.bare_words
        if len(bare) < limits.min_words:
            yield "too few words", len(bare)
        if len(bare) > limits.max_words:
            yield "too many words", len(bare)
        if not bare:
            return
        length = sum(map(len, bare)) / len(bare)
        if length < limits.min_word_length:
            yield "words too short", length
        if length > limits.max_word_length:
            yield "words too long", length
        words = len(view.words)
        if (hashes := view.text.count("#") / words) > limits.max_symbols:
            yield "too many #", hashes
        if (dots := sum(map(view.text.count, ELLIPSES)) / words) > limits.max_symbols:
            yield "too many ellipses", dots
        yield from self._lines(view.lines)
        if (share := _with_a_letter(view.words, limits.min_alphabetic * words) / words) < limits.min_alphabetic:
            yield "too few words with a letter", share
        if (stops := len(set(limits.stop_words).intersection(bare))) < limits.min_stop_words:
            yield "too few stop words", stops

    def _lines(self, lines: list[str]) -> Iterator[Fault]:
        if (share := sum(line.startswith(BULLETS) for line in lines) / len(lines)) > self.config.max_bullets:
            yield "too many bullet lines", share
        if (share := sum(line.endswith(ELLIPSES) for line in lines) / len(lines)) > self.config.max_ellipses:
            yield "too many lines end in an ellipsis", share


def _with_a_letter(words: list[str], enough: float) -> int:
    """How many words have a letter, counted no further than those of letters alone where these are enough."""
    alphabetic = sum(map(str.isalpha, words))
    if alphabetic >= enough:
        return alphabetic
    return alphabetic + sum(any(map(str.isalpha, word)) for word in words if not word.isalpha())
