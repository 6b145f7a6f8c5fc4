"""Two texts whose beginning is the prompt: parted before the first word that differs, so no word is cut in two."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def expand(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row with a prompt of its own; an empty one where the texts do not begin alike."""
    chosen, rejected = row["chosen"], row["rejected"]
    both = zip(chosen, rejected, strict=False)
    shared = chosen[: next((i for i, (a, b) in enumerate(both) if a != b), min(len(chosen), len(rejected)))]
    at = max((match.start() for match in re.finditer(r"\s+", shared)), default=0)
    yield {**row, "prompt": shared[:at], "chosen": chosen[at:].lstrip(), "rejected": rejected[at:].lstrip()}
