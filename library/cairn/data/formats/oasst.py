"""OpenAssistant: the messages of a tree to the conversations in it.

Each way from the root to a leaf, cut after its last answer, is one; the best ranked come first. The start that several
ways share is context in all but the first of them (weight 0), so each answer counts once and none is lost. A deleted
message is left out with everything below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

ANSWERER = "assistant"


def expand(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The flat messages of one tree, `{"rows": [...]}`, to a row a conversation: `{"way": [...], "lang": …, "id": …}`."""
    below: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for message in row["rows"]:
        below[message.get("parent_id")].append(message)
    for root in below[None]:
        yield from conversations(_nested(root, below))


def _nested(message: dict[str, Any], below: dict[Any, list[dict[str, Any]]]) -> dict[str, Any]:
    return message | {"replies": [_nested(reply, below) for reply in below.get(message["message_id"], ())]}


def conversations(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every conversation of a tree whose messages hold their `replies`."""
    counted: set[str] = set()
    for way in _ways(root):
        while way and way[-1]["role"] != ANSWERER:
            way = way[:-1]
        answers = {message["message_id"] for message in way if message["role"] == ANSWERER}
        if answers <= counted:
            continue
        turns = [
            {"role": message["role"], "text": message["text"], "weight": float(message["message_id"] not in counted)}
            for message in way
        ]
        counted |= answers
        yield {"way": turns, "lang": root.get("lang"), "id": way[-1]["message_id"]}


def _ways(message: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """The messages from this one to each leaf below it, by rank where there is one."""
    if message.get("deleted"):
        return
    replies = sorted(message.get("replies") or (), key=_rank)
    ways = [way for reply in replies for way in _ways(reply)]
    yield from ([message, *way] for way in ways or [[]])


def _rank(message: dict[str, Any]) -> float:
    rank = message.get("rank")
    return float("inf") if rank is None else float(rank)
