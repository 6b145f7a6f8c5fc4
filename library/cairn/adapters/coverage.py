"""Which layers a method reaches: a row a kind of layer, so that a name that matches half of a hybrid model is seen."""

from __future__ import annotations

import re
from typing import Any

from cairn.adapters.method import Method
from cairn.errors import AdapterError
from cairn.models.linears import linear_kinds


def coverage(method: Method, model: Any) -> str:
    """A text table: name of the layer, its kind, how many there are, how many are reached, in which layers they are."""
    find = getattr(method, "find", None)
    try:
        reached = set(find(model)) if find is not None else set()
    except AdapterError:
        reached = set()
    rows: dict[tuple[str, str], list[str]] = {}
    for path, kind in linear_kinds(model).items():
        rows.setdefault((re.sub(r"\.\d+\.", ".*.", path), kind), []).append(path)
    lines = [f"  {'layer':44} {'kind':10} reached"]
    for (name, kind), paths in rows.items():
        lines.append(f"  {name:44} {kind:10} {sum(path in reached for path in paths)} of {len(paths)}")
    return "\n".join(lines)
