"""A grid of figures as SVG, a row a layer and a column a kind of module, each cell coloured by its value.

Without a script; the colours are the page's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape

CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 74, 20, 64, 26
LAYER = re.compile(r"(?P<before>.*?)\.(?P<number>\d+)\.(?P<kind>.*)")


def grid(values: Mapping[str, float | None], *, full: float | None = None) -> str:
    """The values by module path; `full` has the fullest colour (None: the largest there is), None an empty cell."""
    rows, columns = _places(values)
    largest = max((abs(value) for value in values.values() if value is not None), default=0.0)
    width, height = LEFT + CELL_WIDTH * len(columns), TOP + CELL_HEIGHT * len(rows)
    inside = [
        *(_label(LEFT + CELL_WIDTH * (i + 0.5), TOP - 9, "middle", kind) for i, kind in enumerate(columns)),
        *(_label(LEFT - 8, TOP + CELL_HEIGHT * (i + 0.7), "end", layer) for i, layer in enumerate(rows)),
    ]
    for path, value in values.items():
        if value is not None:
            layer, kind = _place(path)
            x, y = LEFT + CELL_WIDTH * columns.index(kind), TOP + CELL_HEIGHT * rows.index(layer)
            inside += _cell(x, y, value, full or largest or 1.0, path)
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" class="grid">{"".join(inside)}</svg>'


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


def _places(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Layers in order of number, kinds in order of appearance."""
    places = [_place(path) for path in paths]
    layers = sorted({layer for layer, _ in places}, key=lambda layer: (not layer.isdigit(), layer.zfill(6)))
    return layers, list(dict.fromkeys(kind for _, kind in places))


def _place(path: str) -> tuple[str, str]:
    """Row and column of a module: the number of its layer and its last name, or a row of others."""
    match = LAYER.fullmatch(path)
    return (match["number"], match["kind"].removeprefix("self_attn.").removeprefix("mlp.")) if match else ("-", path)
