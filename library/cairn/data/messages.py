"""The parts of a row to messages: text, roles, function calls and tools, brought to one spelling.

Calls and tools become what chat templates read: `tool_calls: [{type, function: {name, arguments}}]` with arguments
as an object, and `tools: [{type, function: {…}}]`. An empty list of calls is none, for a template may ask whether there
is one at all. Nothing else is added or taken away. The parts of a layout become functions once (`reader`); a row then
costs a lookup for each path, and a path is only spelt out for an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cairn.data.layout import PLACEHOLDER, Each, Part, Split, Turn, kind_name
from cairn.data.paths import MISSING, FieldError, Getter, getter
from cairn.errors import did_you_mean
from cairn.records import Message

Messages = tuple[Message, ...]
Read = Callable[[Any], Sequence[Message]]
"""row → messages. Raises FieldError."""


def reader(parts: Sequence[Part]) -> Callable[[Any], Messages]:
    """What reads the messages of all parts, in order."""
    reads = [READERS[type(part)](part) for part in parts]

    def read(row: Any) -> Messages:
        found: list[Message] = []
        for each in reads:
            found += each(row)
        return tuple(found)

    return read


def _each(part: Each) -> Read:
    find, turns = getter(part.each), [_turn(turn) for turn in part.turns]

    def read(row: Any) -> Sequence[Message]:
        elements = find(row)
        if part.optional and (elements is MISSING or elements is None):
            return ()
        if not isinstance(elements, list):
            raise FieldError(part.each, f"expected a list, found {kind_name(elements)}")
        if not elements and not part.optional:
            raise FieldError(part.each, "the list is empty")
        found: list[Message] = []
        for index, element in enumerate(elements):
            try:
                for turn in (turns[index % len(turns)],) if part.cycle else turns:
                    found += turn(element)
            except FieldError as error:
                raise error.within(f"{part.each}.{index}.") from None
        return found

    return read


def _split(part: Split) -> Read:
    find = getter(part.split)
    marks = re.compile("(" + "|".join(re.escape(mark) for mark in sorted(part.marks, key=len, reverse=True)) + ")")

    def read(row: Any) -> Sequence[Message]:
        text = find(row)
        if part.optional and (text is MISSING or text is None):
            return ()
        if not isinstance(text, str):
            raise FieldError(part.split, f"expected a string, found {kind_name(text)}")
        return [*_parted(part, *marks.split(text))]

    return read


def _parted(part: Split, before: str, *pieces: str) -> Iterator[Message]:
    """The messages of a text that is cut at its marks: what stands before the first, then marks and what follows."""
    if _bare(before, part.drop):
        if part.before is None:
            shown = ", ".join(map(repr, part.marks))
            raise FieldError(part.split, f"text stands before the first of {shown}")
        yield Message(part.before, _bare(before, part.drop))
    if not pieces and part.before is None:
        raise FieldError(part.split, f"none of the marks {', '.join(map(repr, part.marks))}")
    said = [(mark, _bare(text, part.drop, exact=part.exact)) for mark, text in zip(*[iter(pieces)] * 2, strict=True)]
    for mark, content in said[:-1] if said and not said[-1][1] else said:  # a text may end with the mark of a reply
        if not content:
            raise FieldError(part.split, f"nothing is said behind {mark!r}")
        yield Message(part.marks[mark], content)


def _bare(text: str, drop: Sequence[str], *, exact: bool = False) -> str:
    for part in drop:
        text = text.replace(part, "")
    return text if exact else text.strip()


def _turn(turn: Turn) -> Read:
    """Reads one message, or none, from an element."""
    text_of = _filled(turn) if turn.template else _joined(turn)
    fields_of, weight_of, name_of = _fields(turn), _weight(turn), _role_name(turn)
    otherwise, calls = turn.otherwise or "", turn.calls
    roles: dict[str | None, Any] = dict(turn.roles) | {None: turn.role}

    def read(element: Any) -> Sequence[Message]:
        text = text_of(element) or otherwise
        if not text and turn.optional:
            return ()
        fields = fields_of(element)
        name = name_of(element)
        if name in calls:
            fields["tool_calls"] = _calls(_json(text, turn.content[0]), turn.content[0])
            text = ""
        return (Message(roles[name], text, weight_of(element), fields),)

    return read


def _role_name(turn: Turn) -> Callable[[Any], str | None]:
    """The name at `role_at`, one of `roles`; None where the turn has a role of its own."""
    path, roles = turn.role_at, turn.roles
    if path is None:
        return lambda _: None
    find = getter(path)

    def read(element: Any) -> str:
        name = find(element)
        if not isinstance(name, str):
            raise FieldError(path, f"expected a string, found {kind_name(name)}")
        if name not in roles:
            raise FieldError(path, f"unknown role '{name}'; {did_you_mean(name, roles)}")
        return name

    return read


def _joined(turn: Turn) -> Getter:
    """The texts of `content`, of which the first is needed where nothing says otherwise and nothing is called."""
    places = [(path, getter(path)) for path in turn.content]
    needed = None if turn.optional or turn.otherwise else next(iter(turn.content), None)
    calls = _calls_something(turn)

    def read(element: Any) -> str:
        texts = []
        for path, find in places:
            found = find(element)
            if not isinstance(found, str):
                found = plain_text(found, path, required=path == needed and not calls(element))
            if found:
                texts.append(found)
        return turn.joined_by.join(texts)

    return read


def _calls_something(turn: Turn) -> Callable[[Any], bool]:
    path = turn.fields.get("tool_calls", "tool_calls" if "tool_calls" in turn.keep else None)
    if path is None:
        return lambda _: False
    find = getter(path)
    return lambda element: (found := find(element)) is not MISSING and bool(found)


def _filled(turn: Turn) -> Getter:
    """The template with what its placeholders lead to."""
    template = str(turn.template)
    places = [(path, getter(path)) for path in dict.fromkeys(PLACEHOLDER.findall(template))]

    def read(element: Any) -> str:
        found = {path: find(element) for path, find in places}
        if turn.optional and any(value is MISSING or value is None for value in found.values()):
            return ""
        texts = {path: plain_text(value, path, required=True) for path, value in found.items()}
        return PLACEHOLDER.sub(lambda match: texts[match[1]], template)

    return read


def plain_text(found: Any, path: str, *, required: bool) -> str:
    """A text, a number as text, or the joined text parts of OpenAI's list form; "" where an optional one is missing."""
    if isinstance(found, str):
        return found
    if isinstance(found, int | float) and not isinstance(found, bool):
        return str(found)
    if found is MISSING or found is None:
        if required:
            raise FieldError(path, f"expected a string, found {kind_name(found)}")
        return ""
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        return "".join(_part_text(part, path) for part in found)
    raise FieldError(path, f"expected a string, found a {kind_name(found)}")


def _part_text(part: dict[str, Any], path: str) -> str:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise FieldError(path, f"a part of type {part.get('type')!r} is not text")


def _fields(turn: Turn) -> Callable[[Any], dict[str, Any]]:
    """What a chat template may read beside role and text, of what is there."""
    paths = {key: key for key in turn.keep} | turn.fields
    places = [(key, getter(path)) for key, path in paths.items()]

    def read(element: Any) -> dict[str, Any]:
        fields = {}
        for key, find in places:
            found = find(element)
            if found is not MISSING and found is not None:
                fields[key] = found
        if "tool_calls" in fields:
            calls = _calls(fields.pop("tool_calls"), paths["tool_calls"])
            fields |= {"tool_calls": calls} if calls else {}
        return fields

    return read


def _weight(turn: Turn) -> Callable[[Any], float]:
    path = turn.weight
    if path is None:
        return lambda _: 1.0
    find = getter(path)

    def read(element: Any) -> float:
        found = find(element)
        if found is MISSING or found is None:
            return 1.0
        if isinstance(found, (int, float)) and 0 <= found < float("inf"):
            return float(found)
        raise FieldError(path, f"a weight is a number from 0, found {found!r}")

    return read


def _json(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FieldError(path, f"expected JSON ({error.msg})") from None


def _calls(found: Any, path: str) -> list[dict[str, Any]]:
    """One function call or a list of parallel ones, in OpenAI's spelling."""
    calls = found if isinstance(found, list) else [found]
    out = []
    for call in calls:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise FieldError(path, f"a call needs a name and arguments, found {call!r:.80}")
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            arguments = _json(arguments, f"{path}.arguments")
        identity = {"id": call["id"]} if "id" in call else {}
        out.append({**identity, "type": "function", "function": {"name": function["name"], "arguments": arguments}})
    return out


def parse_tools(found: Any) -> tuple[dict[str, Any], ...]:
    """The tools on offer from a list or the JSON text of one; none where missing or empty."""
    if found is MISSING or found is None or found == "":
        return ()
    if isinstance(found, str):
        found = _json(found, "tools")
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise FieldError("tools", f"expected a list of objects, found a {kind_name(found)}")
    return tuple(tool if "function" in tool else {"type": "function", "function": tool} for tool in found)


READERS: dict[type[Part], Callable[[Any], Read]] = {Each: _each, Split: _split, Turn: _turn}
