"""The parts of a conversation's row: text, roles, function calls and tools, brought to one spelling.

Calls and tools become what chat templates read: `tool_calls: [{type, function: {name, arguments}}]` with arguments
as an object, and `tools: [{type, function: {…}}]`. Nothing else is added or taken away.
"""

from __future__ import annotations

import json
from typing import Any

from cairn.data.layout import MISSING, Turn, kind_name, value_at
from cairn.errors import DataError, did_you_mean
from cairn.records import Message, Source


def plain_text(found: Any, *, field: str, required: bool, source: Source) -> str:
    """A text, or the joined text parts of OpenAI's list form; "" where an optional one is missing."""
    if isinstance(found, str):
        return found
    if found is MISSING or found is None:
        if required:
            raise DataError(f"field '{field}': expected a string, found {kind_name(found)}", where=str(source))
        return ""
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        return "".join(_part_text(part, field, source) for part in found)
    raise DataError(f"field '{field}': expected a string, found a {kind_name(found)}", where=str(source))


def _part_text(part: dict[str, Any], field: str, source: Source) -> str:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise DataError(f"field '{field}': a part of type {part.get('type')!r} is not text", where=str(source))


def build_message(turn: Turn, element: Any, text: str, *, prefix: str, source: Source) -> Message:
    """One message from an element of a row."""
    if turn.role_at is None:
        assert turn.role is not None, "a turn has role or role_at"
        return Message(turn.role, text)
    name = value_at(element, turn.role_at)
    field = prefix + turn.role_at
    if not isinstance(name, str):
        raise DataError(f"field '{field}': expected a string, found {kind_name(name)}", where=str(source))
    if name not in turn.roles:
        raise DataError(f"field '{field}': unknown role '{name}'; {did_you_mean(name, turn.roles)}", where=str(source))
    fields = {key: element[key] for key in turn.keep if element.get(key) is not None}
    if name in turn.calls:
        fields["tool_calls"] = _json(text, prefix + turn.content[0], source)
        text = ""
    if "tool_calls" in fields:
        fields["tool_calls"] = _calls(fields["tool_calls"], prefix + "tool_calls", source)
    return Message(turn.roles[name], text, _weight(turn, element, prefix, source), fields)


def _weight(turn: Turn, element: Any, prefix: str, source: Source) -> float:
    found = value_at(element, turn.weight) if turn.weight else MISSING
    if found is MISSING or found is None:
        return 1.0
    if isinstance(found, (int, float)) and 0 <= found < float("inf"):
        return float(found)
    raise DataError(f"field '{prefix}{turn.weight}': a weight is a number from 0, found {found!r}", where=str(source))


def _json(text: str, field: str, source: Source) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"field '{field}': expected JSON ({error.msg})", where=str(source)) from None


def _calls(found: Any, field: str, source: Source) -> list[dict[str, Any]]:
    """One function call or a list of parallel ones, in OpenAI's spelling."""
    calls = found if isinstance(found, list) else [found]
    out = []
    for call in calls:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise DataError(
                f"field '{field}': a call needs a name and arguments, found {call!r:.80}", where=str(source)
            )
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            arguments = _json(arguments, f"{field}.arguments", source)
        identity = {"id": call["id"]} if "id" in call else {}
        out.append({**identity, "type": "function", "function": {"name": function["name"], "arguments": arguments}})
    return out


def parse_tools(found: Any, source: Source) -> tuple[dict[str, Any], ...]:
    """The tools on offer from a list or the JSON text of one; none where missing or empty."""
    if found is MISSING or found is None or found == "":
        return ()
    if isinstance(found, str):
        found = _json(found, "tools", source)
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise DataError(f"field 'tools': expected a list of objects, found a {kind_name(found)}", where=str(source))
    return tuple(tool if "function" in tool else {"type": "function", "function": tool} for tool in found)
