"""A plugin as a recipe chooses it: a name, or a file of the user's own, with its Config."""

from __future__ import annotations

from typing import Any

from cairn.config.section import Section


class Choice(Section):
    """A plugin by name with its parsed Config. For a file of the user's own the name is its path, `source` its text."""

    name: str
    config: Any
    source: str | None = None

    def plain(self) -> dict[str, Any]:
        """As the file would say it."""
        own = {"source": self.source} if self.source is not None else {}
        return {"name": self.name, **own, **self.config.model_dump(mode="json")}
