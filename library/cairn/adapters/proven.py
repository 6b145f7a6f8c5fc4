"""The kept verdicts of `cairn.adapters.proof`, readable without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROVEN = Path(__file__).with_name("proven.json")


def proven() -> dict[str, Any]:
    """What was proven, with which versions: {"versions": …, "methods": {name: {architecture: verdicts}}}."""
    kept: dict[str, Any] = json.loads(PROVEN.read_text())
    return kept
