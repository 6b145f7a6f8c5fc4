"""The page of `cairn compare`: one file that shows a comparison in any browser, without a server and without network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.serving.dashboard.pages import assembled
from cairn.serving.dashboard.series import read_series
from cairn.store.durable import replace_file

PAGE_FILE = "comparison.html"
PLACE = '<script id="comparison" type="application/json">{}</script>'


def write_page(comparison: Mapping[str, Any], folder: Path) -> Path:
    """Write the page of `comparison` (the content of `comparison.json`) into `folder`; returns its path.

    The runs' curves are read from their folders.
    """
    path = folder / PAGE_FILE
    replace_file(path, page_of(comparison))
    return path


def page_of(comparison: Mapping[str, Any]) -> str:
    """The document."""
    curves = {run["name"]: read_series(Path(run["folder"]) / "metrics.jsonl").thinned() for run in comparison["runs"]}
    data = json.dumps({**comparison, "curves": curves}, ensure_ascii=False, allow_nan=False)
    held = data.replace("<", "\\u003c")  # so that no text of an answer ends the element that holds it
    return assembled("comparison.html").replace(PLACE, PLACE.replace("{}", held))
