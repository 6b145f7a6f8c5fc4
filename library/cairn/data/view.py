"""A document as filters see it: its lines, paragraphs and words, each found once and shared by all filters.

A word is what white space separates, as in Dolma's taggers: spaCy's words, which datatrove counts, take far longer. A bare word is what white space or punctuation separates. Lines and paragraphs that are blank count as none, and the
others are stripped. Texts without spaces between words (Chinese, Thai) are no case for rules about words. Cost: 3 % of the
tokenizer's time for words, as much for bare words, 1 % for lines.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import cached_property

from cairn.records import Document

PUNCTUATION = string.punctuation.encode()
TYPOGRAPHIC = "“”‘’„«»‹›…–—•·¡¿、。，．！？；：（）「」"
BLANKED = bytes.maketrans(PUNCTUATION, b" " * len(PUNCTUATION))


class View:
    """A document, and what was found in its text so far."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = document.text

    @cached_property
    def lines(self) -> list[str]:
        """Those that are not blank, stripped."""
        return [stripped for line in self.text.split("\n") if (stripped := line.strip())]

    @cached_property
    def paragraphs(self) -> list[str]:
        """What blank lines separate, stripped."""
        return [stripped for part in self.text.split("\n\n") if (stripped := part.strip())]

    @cached_property
    def words(self) -> list[str]:
        """What white space separates."""
        return self.text.split()

    @cached_property
    def bare_words(self) -> list[str]:
        """What white space or punctuation separates."""
        text = self.text
        if not text.isascii():
            for sign in TYPOGRAPHIC:
                text = text.replace(sign, " ")
        return text.encode().translate(BLANKED).decode().split()

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def repeated_lines(self) -> tuple[int, int]:
        """How many lines stood there before, and their characters."""
        return repeated(self.lines)


def repeated(pieces: Sequence[str]) -> tuple[int, int]:
    """How many of `pieces` stood among those before them, and their characters in all."""
    if len(set(pieces)) == len(pieces):
        return 0, 0
    seen: set[str] = set()
    count = characters = 0
    for piece in pieces:
        if piece in seen:
            count += 1
            characters += len(piece)
        seen.add(piece)
    return count, characters
