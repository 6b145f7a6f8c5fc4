"""What an export is: a published adapter written as something others open, then reloaded and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairn.plugins import Plugin


class Export(Plugin):
    """One target format."""

    def export(self, adapter: Any, target: Path) -> Path:
        """Write `adapter` (`cairn.store.store.Adapter`) to `target` and check that it reloads; returns the path."""
        raise NotImplementedError

    def remarks(self, target: Path) -> list[str]:
        """Lines about what was written to `target`, beside that it is there."""
        return []
