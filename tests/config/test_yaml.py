"""YAML as people mean it."""

from __future__ import annotations

import pytest

from cairn.config.yaml import parse_yaml
from cairn.errors import UserError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("12", 12),
        ("1.2.3", "1.2.3"),
        ("2026-11-30", "2026-11-30"),
        ("e5", "e5"),
        ("-", [None]),
        ("[4, 8]", [4, 8]),
        ("none", "none"),
        ("true", True),
    ],
)
def test_scalars(text: str, value: object) -> None:
    parsed = parse_yaml(text, where="test")
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_broken_text_names_its_line() -> None:
    with pytest.raises(UserError, match=r"file\.yaml:2"):
        parse_yaml("a: 1\nb: [", where="file.yaml")


def test_python_objects_are_not_built() -> None:
    with pytest.raises(UserError):
        parse_yaml("!!python/object/apply:os.system [ls]", where="test")
