"""DCLM-baseline's line modifiers (Li et al. 2024, arXiv 2406.11794, after RefinedWeb's, arXiv 2306.01116, table of
line-wise corrections).

Lines go that are mostly capitals, a number, a counter ("3 likes") or a single word; phrases of the page around a text
are cut from short lines. A document goes that loses more than 5 % of its words so, for it was not much of a text. Cost: 5 %
of the tokenizer's time on the same text.
"""

from __future__ import annotations

import re
import string

from pydantic import Field

from cairn.config.section import Section
from cairn.data.filters.base import Filter, Verdict, edited_lines
from cairn.data.view import View

COUNTER = re.compile(
    r"\W*\d[\d,.]*[KkMmBb]?\s+(?:likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|downloads"
    r"|views|followers)\W*",
    re.IGNORECASE,
)
WITHIN, AT_START, AT_END = "items in cart", "sign-in", ("read more...", "read more…")
PHRASE = re.compile(r"items in cart|^sign-in|read more(?:\.\.\.|…)$", re.IGNORECASE)
CAPITALS = string.ascii_uppercase.encode()


class DclmLines(Filter):
    """Takes the lines of a page that are none of its text, and drops pages that were little else."""

    for_web = True

    class Config(Section):
        """DCLM-baseline's thresholds."""

        max_capitals: float = Field(0.5, ge=0, le=1, description="share of a line's characters at most (DCLM)")
        min_words: int = Field(2, ge=0, description="words of a line at least (DCLM)")
        phrase_words: int = Field(10, ge=0, description="phrases are cut from lines of so many words at most (DCLM)")
        max_removed: float = Field(0.05, ge=0, le=1, description="share of the words removed at most (DCLM)")

    def judge(self, view: View) -> Verdict:
        """The document without those lines, or none."""
        text, counts = edited_lines(view.text, self._line)
        if not counts:
            return None
        words = len(view.words)
        if (share := (words - len(text.split())) / words) > self.config.max_removed:
            return self.drop("too many words in lines that go", share)
        return self.changed(view, text, counts)

    def _line(self, line: str) -> tuple[str | None, str]:
        limits = self.config
        if _capitals(line) > limits.max_capitals * len(line):
            return None, "lines of capitals"
        if line.isdigit():
            return None, "lines that are a number"
        if COUNTER.fullmatch(line):
            return None, "lines that are a counter"
        words = line.count(" ") + 1
        if words <= max(limits.phrase_words, limits.min_words):
            words = len(line.split())
            if words < limits.min_words:
                return None, "lines of too few words"
            if words <= limits.phrase_words:
                return _without_phrases(line)
        return line, ""


def _capitals(line: str) -> int:
    if line.isascii():
        return len(line) - len(line.encode().translate(None, CAPITALS))
    return sum(map(str.isupper, line))


def _without_phrases(line: str) -> tuple[str | None, str]:
    lower = line.lower()
    if WITHIN not in lower and not lower.startswith(AT_START) and not lower.endswith(AT_END):
        return line, ""
    return PHRASE.sub("", line).strip() or None, "lines with a phrase of the page around"
