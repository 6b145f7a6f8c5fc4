"""The page of `cairn adapters diff`: one file that shows two adapters side by side in any browser, without network.

Each figure is a grid, a row a layer and a column a kind of module, drawn here as SVG; without a script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from cairn.adapters.difference import Difference, ModuleDifference
from cairn.serving.dashboard.pages import assembled
from cairn.store.durable import replace_file, storage_errors

PLACE = "<!-- figures -->"
CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 74, 20, 64, 26
LAYER = re.compile(r"(?P<before>.*?)\.(?P<number>\d+)\.(?P<kind>.*)")


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
    figures = "\n".join(_grid(figure, found) for figure in FIGURES)
    heading = f"<p class='soft'>First: <b>{escape(names[0])}</b>, second: <b>{escape(names[1])}</b>.</p>\n"
    return assembled("difference.html").replace(PLACE, heading + figures)


def _grid(figure: Figure, found: Difference) -> str:
    rows, columns = _places(found)
    values = {module.path: figure.of(module) for module in found.modules}
    largest = max((abs(value) for value in values.values() if value is not None), default=0.0)
    full = figure.full or largest or 1.0
    width, height = LEFT + CELL_WIDTH * len(columns), TOP + CELL_HEIGHT * len(rows)
    inside = [
        *(_label(LEFT + CELL_WIDTH * (i + 0.5), TOP - 9, "middle", kind) for i, kind in enumerate(columns)),
        *(_label(LEFT - 8, TOP + CELL_HEIGHT * (i + 0.7), "end", layer) for i, layer in enumerate(rows)),
    ]
    for path, value in values.items():
        if value is not None:
            layer, kind = _place(path)
            x, y = LEFT + CELL_WIDTH * columns.index(kind), TOP + CELL_HEIGHT * rows.index(layer)
            inside += _cell(x, y, value, full, path)
    svg = f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img">{"".join(inside)}</svg>'
    return (
        f'<section><h2>{escape(figure.title)}</h2><p class="soft">{escape(figure.meaning)}</p><div class="panel scroll">{svg}</div>'
        "</section>"
    )


def _cell(x: float, y: float, value: float, full: float, path: str) -> Iterator[str]:
    share = min(1.0, abs(value) / full)
    colour = "--bad" if value < 0 else "--accent"
    yield (
        f'<g><title>{escape(path)}: {value:.4g}</title><rect x="{x + 1}" y="{y + 1}" width="{CELL_WIDTH - 2}"'
        f' height="{CELL_HEIGHT - 2}" rx="3" fill="var({colour})" fill-opacity="{0.06 + 0.64 * share:.3f}"/>'
        f'<text x="{x + CELL_WIDTH / 2}" y="{y + CELL_HEIGHT * 0.7}" text-anchor="middle">{value:.3g}</text></g>'
    )


def _label(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="label" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _places(found: Difference) -> tuple[list[str], list[str]]:
    """Layers in order of number, kinds in order of appearance."""
    places = [_place(module.path) for module in found.modules]
    layers = sorted({layer for layer, _ in places}, key=lambda layer: (not layer.isdigit(), layer.zfill(6)))
    return layers, list(dict.fromkeys(kind for _, kind in places))


def _place(path: str) -> tuple[str, str]:
    """Row and column of a module: the number of its layer and its last name, or a row of others."""
    match = LAYER.fullmatch(path)
    return (match["number"], match["kind"].removeprefix("self_attn.").removeprefix("mlp.")) if match else ("-", path)
