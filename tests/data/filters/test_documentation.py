"""docs/filters.md says what there is, and its example works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests.data.filters.verdicts import document

from cairn.data.cleaning import Kept, clean
from cairn.data.drops import Dropped
from cairn.data.policies import GROUPS, Policy, policies
from cairn.plugins import FILTERS

pytestmark = pytest.mark.unit

PAGE = (Path(__file__).parents[3] / "docs" / "filters.md").read_text(encoding="utf-8")
BLOCKS = {language: re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) for language in ("yaml", "python")}


def test_every_filter_has_a_row_with_what_it_is_made_for():
    rows = dict(re.findall(r"^\| `(\w+)` \| (web)? ?\|", PAGE, re.MULTILINE))
    assert {name: bool(web) for name, web in rows.items() if name in FILTERS.names()} == {
        name: FILTERS.load(name).for_web for name in FILTERS.names()
    }
    assert [group for group in policies()[GROUPS] if f"`{group}`" not in PAGE] == []


def test_the_rules_parse_and_the_example_of_a_filter_filters(tmp_path):
    assert len(Policy.parse(yaml.safe_load(BLOCKS["yaml"][0])).rules) == 3
    (tmp_path / "shouting.py").write_text(BLOCKS["python"][0])
    rules = yaml.safe_load(BLOCKS["yaml"][1].replace("./", f"{tmp_path}/"))
    assert clean(document("ALL in CAPITALS"), Policy.parse(rules)) == Dropped("shouting: too many capitals", "0.6667")
    assert isinstance(clean(document("Hardly in CAPITALS ever"), Policy.parse(rules)), Kept)
