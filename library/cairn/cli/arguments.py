"""Arguments that several commands share, described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe, YAML or JSON.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys to set, as in training.steps=20.")
]
StoragePath = Annotated[
    Path | None, typer.Option("--storage", help="The storage folder; $CAIRN_HOME/storage when not given.")
]


def storage_folder(given: Path | None) -> Path:
    """The storage path as a recipe would have it."""
    from cairn.config.home import default_storage

    return Path(given or default_storage()).expanduser().resolve()
