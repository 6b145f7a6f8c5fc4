"""YAML as people mean it: `1e-4` is a number, a date is a string, a doubled key is an error."""

from __future__ import annotations

import re
from typing import Any

import yaml

from cairn.errors import UserError


class _Loader(yaml.CSafeLoader):
    """PyYAML's safe loader, on libyaml (ten times faster over the formats), with the YAML 1.2 float and without timestamps."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def parse_yaml(text: str, *, where: str) -> Any:
    """The value of a YAML text; a UserError with the line where it is broken."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{min(mark.line + 1, len(text.splitlines()))}" if mark else where  # the end is a line too many
        problem = getattr(error, "problem", None) or str(error)
        raise UserError(f"not valid YAML: {problem}", where=place, next_step="mend the syntax at that line") from None
