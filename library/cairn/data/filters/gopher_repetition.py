"""Gopher's repetition rules (Rae et al. 2021, arXiv 2112.11446, Table A1), with the paper's thresholds.

Shares are of all characters of the text. Duplicate n-grams are counted as datatrove counts them: reading on from the
end of one that stood before, so that no character counts twice. An n-gram that stands once repeats nothing. n-grams are
compared as 64-bit hashes; what cannot reach its threshold is not counted. Cost: 15 % of the
tokenizer's time on the same text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
from pydantic import Field

from cairn.config.section import Section
from cairn.data.filters.base import Fault, Filter
from cairn.data.view import View, repeated

STEP = np.uint64(0x9E3779B97F4A7C15)


class GopherRepetition(Filter):
    """Drops what says the same again and again: lines, paragraphs, or sequences of words."""

    for_web = True

    class Config(Section):
        """Table A1."""

        lines: float = Field(0.3, ge=0, le=1, description="share of lines that stood before (Table A1)")
        paragraphs: float = Field(0.3, ge=0, le=1, description="share of paragraphs that stood before (Table A1)")
        line_characters: float = Field(0.2, ge=0, le=1, description="their share of characters (Table A1)")
        paragraph_characters: float = Field(0.2, ge=0, le=1, description="their share of characters (Table A1)")
        top_grams: dict[int, float] = Field(
            {2: 0.2, 3: 0.18, 4: 0.16}, description="n → share of characters in the most frequent n-gram (Table A1)"
        )
        repeated_grams: dict[int, float] = Field(
            {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1},
            description="n → share of characters in n-grams that stood before (Table A1)",
        )

    def faults(self, view: View) -> Iterator[Fault]:
        """Lines and paragraphs first."""
        size = len(view.text)
        if not view.lines:
            return
        yield from self._pieces("paragraphs", view.paragraphs, repeated(view.paragraphs), size)
        yield from self._pieces("lines", view.lines, view.repeated_lines, size)
        words = _Words(view.words)
        yield from self._top_grams(words, size)
        yield from self._repeated_grams(words, size)

    def _pieces(self, name: str, pieces: Sequence[str], found: tuple[int, int], size: int) -> Iterator[Fault]:
        again, characters = found
        if (share := again / len(pieces)) > getattr(self.config, name):
            yield f"{name} repeated", share
        if (share := characters / size) > getattr(self.config, f"{name[:-1]}_characters"):
            yield f"characters of repeated {name}", share

    def _top_grams(self, words: _Words, size: int) -> Iterator[Fault]:
        most = len(words.codes)
        for n, limit in sorted(self.config.top_grams.items()):
            if n > len(words.codes) or most * (n * (words.longest + 1) - 1) <= limit * size:
                continue
            most = words.highest_count(n)
            if most > 1 and most * (n * (words.longest + 1) - 1) > limit * size:
                share = most * words.most_frequent(n) / size
                if share > limit:
                    yield f"most frequent {n}-gram", share

    def _repeated_grams(self, words: _Words, size: int) -> Iterator[Fault]:
        limits = sorted(self.config.repeated_grams.items())
        if not limits or len(words.codes) < limits[0][0]:
            return
        at_most = words.covered(limits[0][0])
        for n, limit in limits:
            if at_most > limit * size and (share := words.repeated(n) / size) > limit:
                yield f"repeated {n}-grams", share


class _Words:
    """Words as numbers, and how long they are. An n-gram is a polynomial in its numbers mod 2^64."""

    def __init__(self, words: Sequence[str]) -> None:
        number = defaultdict[str, int](count(1).__next__)
        self.codes = np.fromiter(map(number.__getitem__, words), np.uint64, len(words))
        self.sizes = np.fromiter(map(len, words), np.int64, len(words))
        self.longest = int(self.sizes.max())

    def highest_count(self, n: int) -> int:
        """How often the most frequent n-gram stands there."""
        ordered = np.sort(self._grams(n))
        ends = (ordered[1:] != ordered[:-1]).nonzero()[0]
        if len(ends) == len(ordered) - 1:
            return 1
        counts = ends[1:] - ends[:-1]
        outer = (ends[0] + 1, len(ordered) - 1 - ends[-1]) if len(ends) else (len(ordered),)
        return int(max(*outer, counts.max() if len(counts) else 0))

    def most_frequent(self, n: int) -> int:
        """The characters of the most frequent n-gram, the first of several, with its spaces."""
        order, again = self._sorted(n)
        starts = (~again).nonzero()[0]
        counts = np.append(starts[1:], len(order)) - starts
        first = int(order[starts[counts == counts.max()]].min())
        return int(self.sizes[first : first + n].sum()) + n - 1

    def covered(self, n: int) -> int:
        """Characters of all words within n-grams that stood before: no fewer than `repeated` finds for n or more."""
        order, again = self._sorted(n)
        where = order[again]
        if not len(where):
            return 0
        change = np.zeros(len(self.codes) + 1, np.int64)
        change[where] += 1
        change[where + n] -= 1
        return int(self.sizes[change.cumsum()[:-1] > 0].sum())

    def repeated(self, n: int) -> int:
        """Characters of n-grams that stood before, reading on from the end of each."""
        grams, sizes = self._grams(n).tolist(), self.sizes.tolist()
        seen: set[int] = set()
        characters = position = 0
        while position < len(grams):
            if grams[position] in seen:
                characters += sum(sizes[position : position + n])
                position += n
            else:
                seen.add(grams[position])
                position += 1
        return characters

    def _grams(self, n: int) -> np.ndarray:
        hashes = self.codes[: max(0, len(self.codes) - n + 1)]
        for start in range(1, n):
            hashes = hashes * STEP + self.codes[start : start + len(hashes)]
        return hashes

    def _sorted(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Where each n-gram stands, equal ones side by side in their order; and which are equal to the one before."""
        hashes = self._grams(n)
        order = hashes.argsort(kind="stable")
        ordered = hashes[order]
        again = np.zeros(len(order), bool)
        again[1:] = ordered[1:] == ordered[:-1]
        return order, again
