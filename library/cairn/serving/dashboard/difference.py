"""The page of `cairn adapters diff`: one file that shows two adapters side by side in any browser, without network.

Each figure is a grid (`cairn.serving.dashboard.grid`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from cairn.adapters.difference import Difference, ModuleDifference
from cairn.serving.dashboard.grid import grid
from cairn.serving.dashboard.pages import assembled
from cairn.store.durable import replace_file, storage_errors

PLACE = "<!-- figures -->"


@dataclass(frozen=True)
class Figure:
    """One grid: what it shows, how to read it, and the value of the fullest colour (None: the largest there is)."""

    title: str
    meaning: str
    of: Callable[[ModuleDifference], float | None]
    full: float | None = None


FIGURES = (
    Figure("‖ΔW‖ of the first", "how strongly it changes each module", lambda m: m.norm),
    Figure("‖ΔW‖ of the second", "the same of the other", lambda m: m.other_norm),
    Figure("‖ΔW − ΔW'‖ / ‖ΔW‖", "how far the second is from the first; 0: the same", lambda m: m.relative),
    Figure("cosine of the updates", "1: the same direction, 0: none in common, −1: opposed", lambda m: m.cosine, 1.0),
    Figure("overlap of the column spaces", "1: they write into the same directions", lambda m: m.overlap_out, 1.0),
    Figure("overlap of the row spaces", "1: they read from the same directions", lambda m: m.overlap_in, 1.0),
)


def write_page(found: Difference, names: tuple[str, str], path: Path) -> Path:
    """Write the page to `path`, in one step; returns the path."""
    with storage_errors(path):
        replace_file(path, page_of(found, names))
    return path


def page_of(found: Difference, names: tuple[str, str]) -> str:
    """The document."""
    figures = "\n".join(_section(figure, found) for figure in FIGURES)
    heading = f"<p class='soft'>First: <b>{escape(names[0])}</b>, second: <b>{escape(names[1])}</b>.</p>\n"
    return assembled("difference.html").replace(PLACE, heading + figures)


def _section(figure: Figure, found: Difference) -> str:
    svg = grid({module.path: figure.of(module) for module in found.modules}, full=figure.full)
    return (
        f'<section><h2>{escape(figure.title)}</h2><p class="soft">{escape(figure.meaning)}</p><div class="panel scroll">{svg}</div>'
        "</section>"
    )
