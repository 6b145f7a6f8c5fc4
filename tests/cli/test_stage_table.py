"""docs/stages.md is what the code says, and names what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cairn.cli.stage_table import MARKER, stage_sections
from cairn.comparison.figures import FIGURES
from cairn.config.table import rewrite
from cairn.losses.preference import VARIANTS
from cairn.plugins import STAGES

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "stages.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rewrite(text, MARKER, stage_sections(ROOT / "jobs" / "recipes")) == text, "run: make tables"


def test_every_stage_has_its_section_with_record_loss_defaults_and_recipe() -> None:
    parts = re.split(r"^## ", stage_sections(ROOT / "jobs" / "recipes"), flags=re.MULTILINE)[1:]
    sections = dict(zip(STAGES.names(), parts, strict=True))
    for name, section in sections.items():
        assert section.startswith(f"{name}\n")
        for part in ("| learns from |", "| loss |", "| defaults |", f"| recipe | [`{name}"):
            assert part in section, (name, part)
    assert all(f"| `{loss}` |" in sections["dpo"] for loss in VARIANTS)


def test_the_page_explains_the_figures_of_a_comparison_and_its_files_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert not [name for name in FIGURES if f"`{name}`" not in text]
    links = re.findall(r"\]\(\.\./([\w/.-]+)\)", text)
    assert links
    assert not [link for link in links if not (ROOT / link).is_file()]
