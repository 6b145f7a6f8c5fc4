"""The README's tables are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.cli import table as commands
from cairn.config import table as recipe

pytestmark = pytest.mark.unit

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_recipe_table_names_every_key_with_its_default() -> None:
    text = recipe.recipe_table()
    assert "| `training.global_batch` | int | `8` |" in text
    assert "| `storage.path` | str | `$CAIRN_HOME/storage` |" in text
    assert "| `model.path` | str | required |" in text
    assert "[docs/methods.md](docs/methods.md)" in text
    assert "| `optimizer.learning_rate` |" in text
    assert "fp32 \\| bf16" in text


@pytest.mark.parametrize(
    ("marker", "content"), [(recipe.MARKER, recipe.recipe_table), (commands.MARKER, commands.command_table)]
)
def test_the_readme_is_up_to_date(marker: str, content: object) -> None:
    text = README.read_text(encoding="utf-8")
    assert callable(content)
    assert recipe.rewrite(text, marker, content()) == text, "run: make tables"


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks"):
        recipe.rewrite("nothing", "commands", "table")
