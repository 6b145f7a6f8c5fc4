"""Ratios of characters: symbols, digits, white space. The thresholds are those of NeMo Curator's heuristic filters.

ASCII is counted in bulk, other characters one by one. Cost: 2 % of the
tokenizer's time on the same text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from pydantic import Field

from cairn.config.section import Section
from cairn.data.filters.base import Fault, Filter
from cairn.data.view import View

OTHER = re.compile(r"[^\x00-\x7f]+")
LETTERS, DIGITS, SPACE = (s.encode() for s in (string.ascii_letters, string.digits, string.whitespace))


class Symbols(Filter):
    """Drops what is made of signs, numbers or gaps rather than of words."""

    for_web = True

    class Config(Section):
        """NeMo Curator's: NonAlphaNumericFilter, NumbersFilter, WhiteSpaceFilter."""

        max_symbols: float = Field(
            0.25, ge=0, le=1, description="share of characters that are no letter, digit or white space (NeMo Curator)"
        )
        max_digits: float = Field(0.15, ge=0, le=1, description="share of characters that are digits (NeMo Curator)")
        max_space: float = Field(
            0.25, ge=0, le=1, description="share of characters that are white space (NeMo Curator)"
        )

    def faults(self, view: View) -> Iterator[Fault]:
        """All three from one count."""
        if not (size := len(view.text)):
            return
        letters, digits, space = _counted(view.text)
        shares = {"symbols": size - letters - digits - space, "digits": digits, "space": space}
        for name, count in shares.items():
            if (share := count / size) > getattr(self.config, f"max_{name}"):
                yield f"too much {name}" if name == "space" else f"too many {name}", share


def _counted(text: str) -> tuple[int, int, int]:
    """Letters with their marks, digits, white space."""
    raw = text.encode("ascii", "ignore")
    letters, digits, space = (len(raw) - len(raw.translate(None, kind)) for kind in (LETTERS, DIGITS, SPACE))
    if len(raw) < len(text):
        other = "".join(OTHER.findall(text))
        numbers = sum(map(str.isdigit, other))
        letters += sum(map(str.isalnum, other)) - numbers
        digits += numbers
        space += sum(map(str.isspace, other))
    return letters, digits, space
