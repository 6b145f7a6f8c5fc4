"""C4's rules (Raffel et al. 2020, arXiv 1910.10683, section 2.2, and its code, TensorFlow Datasets' c4_utils).

Lines that are no sentences go, then what is left must be enough of them. A page with `{` or "lorem ipsum" goes whole, and
one with a bad word: the list is the user's, none ships. A sentence ends at `.`, `!` or `?` before white space or at the end
of a line (C4 asks nltk's Punkt). C4's removal of repeated spans of three lines is deduplication. Cost: 4 % of
the tokenizer's time on the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from pydantic import Field

from cairn.config.section import Section
from cairn.data.filters.base import Fault, Filter, Verdict, edited_lines
from cairn.data.view import View

TERMINALS = (".", "!", "?", '"', "'", "”", "’")
ELLIPSES = ("...", "…")
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
CITATION = re.compile(r"\[(?:\d{0,4}|edit|citation needed)\]")
WITHIN_LINE = re.compile(r"""[.!?]["'”’)\]]{0,3}[ \t]""")
"""Where a sentence ends that is not its line's last."""


class C4(Filter):
    """Keeps the lines that are sentences, and drops what then is too short or is no page of text at all."""

    for_web = True

    class Config(Section):
        """The paper's thresholds; FineWeb sets terminal_punctuation to false."""

        terminal_punctuation: bool = Field(
            True, description="keep only lines that end in . ! ? or a quotation mark, and in no ellipsis (C4)"
        )
        min_words_per_line: int = Field(3, ge=0, description="words of a line at least (C4)")
        max_word_length: int = Field(1000, ge=1, description="a line goes that has a longer word (C4's code)")
        min_sentences: int = Field(5, ge=0, description="sentences left of a document at least (C4)")
        min_long_lines: int = Field(0, ge=0, description="lines of long_line characters at least (mC4: 3)")
        long_line: int = Field(200, ge=1, description="characters of a long line (mC4)")
        bad_words: tuple[str, ...] = Field((), description="a document goes that has one; C4 took LDNOOBW's list")

    def judge(self, view: View) -> Verdict:
        """Rules for the page, for its lines, and for what is left."""
        for reason, found in self.faults(view):
            return self.drop(reason, found)
        text = CITATION.sub("", view.text) if "[" in view.text else view.text
        citations = (len(view.text) - len(text)) and len(CITATION.findall(view.text))
        left, counts = edited_lines(text, self._line)
        for reason, found in self._too_little(left):
            return self.drop(reason, found)
        return self.changed(view, left, {"citation marks cut": citations, **counts})

    def faults(self, view: View) -> Iterator[Fault]:
        """What no page of text has."""
        if "{" in view.text:
            yield "curly bracket", ""
        if "lorem ipsum" in view.lower:
            yield "lorem ipsum", ""
        if self._bad_words and self._bad_words.search(view.lower):
            yield "bad word", ""

    def _line(self, line: str) -> tuple[str | None, str]:
        limits = self.config
        if limits.terminal_punctuation and (not line.endswith(TERMINALS) or line.endswith(ELLIPSES)):
            return None, "lines without terminal punctuation"
        words = line.split()
        if len(words) < limits.min_words_per_line:
            return None, "lines of too few words"
        if len(line) > limits.max_word_length and max(map(len, words)) > limits.max_word_length:
            return None, "lines with a word too long"
        lower = line.lower()
        if "javascript" in lower:
            return None, "lines with javascript"
        if any(phrase in lower for phrase in POLICIES):
            return None, "lines about policies"
        return line, ""

    def _too_little(self, text: str) -> Iterator[Fault]:
        lines = [line for line in text.split("\n") if line]
        if len(lines) < self.config.min_sentences:
            sentences = len(lines) + len(WITHIN_LINE.findall(text))
            if sentences < self.config.min_sentences:
                yield "too few sentences", sentences
        long = sum(len(line) >= self.config.long_line for line in lines)
        if long < self.config.min_long_lines:
            yield "too few long lines", long

    @cached_property
    def _bad_words(self) -> re.Pattern[str] | None:
        words = "|".join(re.escape(word.lower()) for word in self.config.bad_words)
        return re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None
