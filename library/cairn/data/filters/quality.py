"""Quality by a classifier of the user's own training: the Pile-CC recipe (Gao et al. 2020, appendix C.1).

A document whose score says how much it resembles the good ones stays when a Pareto draw exceeds 1 − score: with α = 3
most of the good, one in eight of the worst (as GPT-3's, Brown et al. 2020, appendix A). The draw comes from a hash of the
text, so that it is the same wherever and whenever the text is judged. `cairn data train-filter` writes the model. Cost: 0.1
ms a document, whatever its length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from pydantic import Field

from cairn.config.home import expand
from cairn.config.section import Section
from cairn.data.classifier import Classifier, excerpt
from cairn.data.filters.base import Fault, Filter
from cairn.data.view import View


class Quality(Filter):
    """Keeps at random, and the better a document the likelier."""

    for_web = True

    class Config(Section):
        """The Pile's settings; with `min_score` a threshold decides in place of the draw, as in DCLM-baseline."""

        model: str = Field(description="a file that cairn data train-filter wrote")
        alpha: float = Field(3.0, gt=0, description="of the Pareto distribution; larger keeps less (the Pile: 3)")
        min_score: float | None = Field(None, ge=0, le=1, description="keep by score alone; none: by a Pareto draw")

    def faults(self, view: View) -> Iterator[Fault]:
        """What is too short to judge goes too, as in the Pile."""
        text = excerpt(view.text)
        if text is None:
            yield "too short to judge", len(view.text)
            return
        score = float(self._classifier.scores([text])[0])
        wanted = self.config.min_score
        if wanted is None:
            wanted = 1 - pareto_draw(view.text, self.config.alpha)
            if score <= wanted:
                yield "not drawn by its score", score
        elif score < wanted:
            yield "score too low", score

    def fingerprint(self) -> str:
        """With a hash of the model."""
        return f"{super().fingerprint()} {hashlib.sha256(Path(expand(self.config.model)).read_bytes()).hexdigest()}"

    @cached_property
    def _classifier(self) -> Classifier:
        return Classifier.read(expand(self.config.model))


def pareto_draw(text: str, alpha: float) -> float:
    """A draw of the Pareto distribution that begins at 0 (Lomax; numpy's), decided by the text: P(draw > x) = (1 + x)^-α."""
    even = (int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) + 1) / 2.0**64
    return float(even ** (-1 / alpha) - 1)
