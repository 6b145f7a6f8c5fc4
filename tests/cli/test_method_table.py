"""docs/methods.md is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cairn.cli.method_table import MARKER, method_sections
from cairn.config.table import rewrite
from cairn.plugins import METHODS

pytestmark = pytest.mark.unit

PAGE = Path(__file__).resolve().parents[2] / "docs" / "methods.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rewrite(text, MARKER, method_sections()) == text, "run: make tables"


def test_every_method_has_its_section_with_its_keys_or_the_reason_why_not() -> None:
    parts = re.split(r"^## ", method_sections(), flags=re.MULTILINE)[1:]
    sections = {part.partition("\n")[0]: part for part in parts}
    for name in METHODS.names():
        method = METHODS.load(name)
        if method.refused:
            assert f"| `{name}` | {method.refused} |" in sections["Refused"]
        else:
            missing = [key for key in method.Config.model_fields if f"`adapter.{key}`" not in sections[name]]
            assert not missing, (name, missing)
