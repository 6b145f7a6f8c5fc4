"""The generated part of docs/stages.md: what every stage eats, its loss, its defaults and its recipe.

`python -m cairn.cli.stage_table` rewrites what stands between the markers; a test fails when the page is behind. A
new stage documents itself by existing: its module's docstring, its class's first line, its Config.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cairn.config.table import rewrite
from cairn.losses.preference import VARIANTS, Variant
from cairn.plugins import STAGES

MARKER = "stages"
RECIPES = Path("jobs/recipes")


def stage_sections(recipes: Path = RECIPES) -> str:
    """Markdown: a section a stage, in the order of their names; `recipes` is the folder of recipes."""
    return "\n\n".join("\n".join(_section(name, recipes)) for name in STAGES.names())


def _section(name: str, recipes: Path) -> Iterator[str]:
    stage = STAGES.load(name)
    yield f"## {name}"
    yield ""
    yield _one_line(inspect.getmodule(stage).__doc__)
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| learns from | {stage.record.__name__}: {_one_line(stage.record.__doc__)} |"
    yield f"| loss | {_one_line(stage.__doc__)} |"
    yield f"| model ends in | {'one number, a score' if stage.head == 'score' else 'the vocabulary'} |"
    yield f"| defaults | {_defaults(stage)} |"
    yield from (f"| recipe | [`{path.name}`](../{RECIPES}/{path.name}): {_head(path)} |" for path in _of(name, recipes))
    if name == "dpo":
        yield from ("", "| `stage.loss` | formula, h = d_c − d_r, d = lp − ref |", "|---|---|")
        yield from (f"| `{loss}` | {_formula(variant)} |" for loss, variant in VARIANTS.items())


def _formula(variant: Variant) -> str:
    per_token = " Here of means over an answer's tokens." if variant.per_token else ""
    return f"{_one_line(variant.formula.__doc__)}{per_token}"


def _defaults(stage: Any) -> str:
    fields = stage.Config.model_fields.items()
    return ", ".join(f"`{key}: {json.dumps(field.default)}`" for key, field in fields) or "nothing to choose"


def _of(stage: str, recipes: Path) -> list[Path]:
    """The recipes named after the stage: `sft.yaml`, `sft-full.yaml`."""
    return [path for path in sorted(recipes.glob("*.yaml")) if path.stem == stage or path.stem.startswith(f"{stage}-")]


def _head(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()[:2]
    return _cell(" ".join(line.removeprefix("# ") for line in lines))


def _one_line(docstring: str | None) -> str:
    """Everything before the first empty line."""
    return _cell(" ".join((docstring or "").strip().split("\n\n")[0].split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(page: Path = Path("docs/stages.md")) -> None:
    """Rewrite the sections in place."""
    page.write_text(rewrite(page.read_text(encoding="utf-8"), MARKER, stage_sections()), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
