"""Lines of the frame around a text: known phrases, and headers or footers that stand again on every page of it.

Only short lines go, since a long one with such a phrase is a sentence about it. A line that repeats stays once. Cost: 5 %
of the tokenizer's time on the same text.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

from pydantic import Field

from cairn.config.section import Section
from cairn.data.filters.base import Filter, Verdict, edited_lines
from cairn.data.view import View

PHRASES = (
    "all rights reserved",
    "back to top",
    "click here",
    "cookie settings",
    "enable cookies",
    "enable javascript",
    "follow us on",
    "forgot your password",
    "log in to comment",
    "powered by wordpress",
    "share on facebook",
    "share on twitter",
    "share this:",
    "sign up for our newsletter",
    "skip to content",
    "skip to main content",
    "subscribe to our newsletter",
)

NEVER = r"(?!)"


class Boilerplate(Filter):
    """Takes lines; never the whole document, unless nothing else is in it."""

    for_web = True

    class Config(Section):
        """No paper's: chosen so that a sentence is not taken for a frame."""

        phrases: tuple[str, ...] = Field(PHRASES, description="a short line with one of them goes; case does not count")
        max_line: int = Field(100, ge=1, description="characters of a short line at most")
        repeats: int = Field(3, ge=2, description="a short line that stands so often is a header or footer")
        min_words: int = Field(2, ge=1, description="words of a header or footer at least")

    def judge(self, view: View) -> Verdict:
        """The document without them."""
        often = self._often(view)
        phrases = self._phrases if self._phrases.search(view.lower) else None
        if not often and phrases is None:
            return None
        seen: set[str] = set()

        def rule(line: str) -> tuple[str | None, str]:
            if phrases is not None and len(line) <= self.config.max_line and phrases.search(line.lower()):
                return None, "lines with a known phrase"
            if line in often:
                if line in seen:
                    return None, "headers and footers repeated"
                seen.add(line)
            return line, ""

        text, counts = edited_lines(view.text, rule)
        return self.changed(view, text, counts)

    def _often(self, view: View) -> set[str]:
        if view.repeated_lines[0] < self.config.repeats - 1:
            return set()
        return {
            line
            for line, count in Counter(view.lines).items()
            if count >= self.config.repeats
            and len(line) <= self.config.max_line
            and len(line.split()) >= self.config.min_words
        }

    @cached_property
    def _phrases(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(phrase.lower()) for phrase in self.config.phrases) or NEVER)
