"""Length in bytes, characters and words. The Pile's own: EuroParl from 200 characters, PhilPapers from 1000 (appendix C)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from cairn.config.section import Section
from cairn.data.filters.base import Fault, Filter
from cairn.data.view import View

Bound = Annotated[int, Field(ge=0)] | None


class Length(Filter):
    """Drops what is shorter or longer than asked; nothing, where nothing is asked."""

    class Config(Section):
        """Bounds are included."""

        min_bytes: Bound = Field(None, description="UTF-8 bytes at least")
        max_bytes: Bound = Field(None, description="UTF-8 bytes at most")
        min_characters: Bound = Field(None, description="characters at least")
        max_characters: Bound = Field(None, description="characters at most")
        min_words: Bound = Field(None, description="words at least")
        max_words: Bound = Field(None, description="words at most")

    def faults(self, view: View) -> Iterator[Fault]:
        """Only what is bounded is counted."""
        for unit, measure in MEASURES.items():
            low, high = getattr(self.config, f"min_{unit}"), getattr(self.config, f"max_{unit}")
            if low is None and high is None:
                continue
            size = measure(view)
            if low is not None and size < low:
                yield f"too few {unit}", size
            if high is not None and size > high:
                yield f"too many {unit}", size


MEASURES = {
    "characters": lambda view: len(view.text),
    "bytes": lambda view: len(view.text.encode()),
    "words": lambda view: len(view.words),
}
