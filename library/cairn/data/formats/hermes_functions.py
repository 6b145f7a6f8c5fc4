"""Hermes function calling: calls and results in tags within the texts, to tool calls and tool messages.

The system text of such rows is what a chat template writes about `tools` by itself, so it gives way to them. A row
with another system text keeps all its texts as they are: its tools would be listed twice otherwise.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from cairn.errors import DataError

CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
RESULT = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
OPENING = "You are a function calling AI model"


def expand(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row of `messages`, and `tools` where they replace the system text."""
    labels = {key: row.get(key) for key in ("id", "category")}
    system, *turns = row["conversations"]
    if system["value"].lstrip().startswith(OPENING):
        messages = [message for turn in turns for message in _messages(turn["from"], turn["value"])]
        yield labels | {"messages": messages, "tools": row["tools"]}
    else:
        yield labels | {"messages": [{"role": turn["from"], "content": turn["value"]} for turn in (system, *turns)]}


def _messages(role: str, text: str) -> Iterator[dict[str, Any]]:
    results = RESULT.findall(text) if role == "tool" else []
    calls = CALL.findall(text) if role == "gpt" else []
    if results:
        yield from ({"role": role, "content": result} for result in results)
    elif calls:
        yield {"role": role, "content": CALL.sub("", text).strip(), "tool_calls": [_parsed(call) for call in calls]}
    else:
        yield {"role": role, "content": text}


def _parsed(call: str) -> Any:
    """A call written as JSON or, as in some rows, the way Python prints it."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(call)
        except (ValueError, SyntaxError):
            continue
    raise DataError(f"field 'conversations': expected a function call, found {call[:60]!r}", where="conversations")
