"""Glaive function calling: a system text with the functions' JSON in it and one text of the whole chat, to messages.

The functions leave the system text for `tools`, and with them the sentence that leads to them; a call's arguments are
JSON in single quotes within JSON, so the call is taken apart by its marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cairn.errors import DataError

SPEAKERS = {"USER:": "user", "ASSISTANT:": "assistant", "FUNCTION RESPONSE:": "tool"}
SPEAKER = re.compile(rf"^\s*({'|'.join(SPEAKERS)})", re.MULTILINE)
CALL = re.compile(r"""^\{\s*"name":\s*"(?P<name>[^"]+)"\s*(,\s*"arguments":\s*(?P<arguments>.*?))?\s*\}$""", re.DOTALL)
CALL_MARK, END = "<functioncall>", "<|endoftext|>"
LEAD = "with access to the following functions"


def expand(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row of `messages` and `tools`."""
    system, tools = _system(row["system"])
    _, *pieces = SPEAKER.split(row["chat"])
    turns = [_turn(SPEAKERS[mark], text) for mark, text in zip(pieces[::2], pieces[1::2], strict=True)]
    yield {"messages": [*([{"role": "system", "content": system}] if system else []), *turns], "tools": tools}


def _system(text: str) -> tuple[str, list[Any]]:
    said, brace, functions = text.strip().removeprefix("SYSTEM:").partition("{")
    tools, rest = [], brace + functions
    while rest.strip():
        try:
            tool, end = json.JSONDecoder().raw_decode(rest.lstrip())
        except json.JSONDecodeError as error:
            raise DataError(f"field 'system': a function is not JSON ({error.msg})", where="system") from None
        tools.append(tool)
        rest = rest.lstrip()[end:]
    return ("" if tools and LEAD in said else said.strip()), tools


def _turn(role: str, text: str) -> dict[str, Any]:
    content = text.replace(END, "").strip()
    if role != "assistant" or CALL_MARK not in content:
        return {"role": role, "content": content}
    said, *calls = content.split(CALL_MARK)
    return {"role": role, "content": said.strip(), "tool_calls": [_call(call.strip()) for call in calls]}


def _call(text: str) -> dict[str, Any]:
    found = CALL.match(text)
    if found is None:
        raise DataError(f"field 'chat': expected a function call, found {text[:60]!r}", where="chat")
    arguments = (found["arguments"] or "{}").strip()
    if arguments.startswith("'") and arguments.endswith("'"):
        arguments = arguments[1:-1].replace("\\'", "'")
    try:
        return {"name": found["name"], "arguments": json.loads(arguments, strict=False)}
    except json.JSONDecodeError as error:
        problem = f"field 'chat': the arguments of {found['name']} are not JSON ({error.msg})"
        raise DataError(problem, where="chat") from None
