"""The page of `cairn adapters diff`: whole in itself, every figure in its place, nothing taken for markup."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.adapters.updates import SHAPES, lora

from cairn.adapters.combine import combine
from cairn.adapters.difference import difference
from cairn.errors import StorageError
from cairn.serving.dashboard.difference import FIGURES, page_of, write_page

pytestmark = pytest.mark.unit

NAMES = ("support@1", "<b>legal</b>@2")
Q, V, DOWN = SHAPES


def grids(page: str) -> list[ElementTree.Element]:
    """The figures' SVG, parsed."""
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg viewBox[^>]*>.*?</svg>", page)]


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = page_of(difference(lora(1), lora(2)), NAMES)
    assert not re.findall(r"https?://|@import|url\(|<script|\w+\.css \*/|<!-- figures", page)
    assert "&lt;b&gt;legal&lt;/b&gt;@2" in page
    assert "<b>legal</b>" not in page


def test_every_module_has_its_cell_in_every_figure() -> None:
    found = difference(lora(1), lora(2))
    drawn = grids(page_of(found, NAMES))
    assert len(drawn) == len(FIGURES)
    for figure, grid in zip(FIGURES, drawn, strict=True):
        titles = {title.text for title in grid.iter("title")}
        assert titles == {f"{module.path}: {figure.of(module):.4g}" for module in found.modules}
        assert {label.text for label in grid.iter("text")} >= {"0", "1", "q_proj", "v_proj", "down_proj"}


def test_what_points_the_other_way_has_another_colour_and_nothing_has_no_cell() -> None:
    against = difference(lora(1), combine([lora(1, {Q: 4})], [-1.0]).weights)
    cosine = grids(page_of(against, NAMES))[3]
    (cell,) = cosine.iter("rect")
    assert cell.attrib["fill"] == "var(--bad)"
    assert float(cell.attrib["fill-opacity"]) == pytest.approx(0.7, abs=0.01)


def test_it_is_written_whole_or_the_disk_is_blamed(tmp_path: Path) -> None:
    found = difference(lora(1), lora(2))
    assert write_page(found, NAMES, tmp_path / "a.html").read_text() == page_of(found, NAMES)
    with pytest.raises(StorageError):
        write_page(found, NAMES, tmp_path / "missing" / "a.html")
