"""OpenAssistant trees, one a row with the replies in each message, to the conversations in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cairn.data.formats.oasst import conversations


def expand(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`{"prompt": {…, "replies": […]}}` to a row a conversation, as for flat messages."""
    yield from conversations(row["prompt"])
