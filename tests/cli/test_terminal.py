"""Progress in a log is a few lines; values are shown as they are."""

from __future__ import annotations

import pytest

from cairn.cli.terminal import progress, say, show_table

pytestmark = pytest.mark.unit


def test_progress_without_a_terminal_is_at_most_eleven_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("preparing") as update:
        for done in range(1001):
            update(done, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert (lines[0], lines[-1]) == ("preparing: 0 of 1000", "preparing: 1000 of 1000")


def test_brackets_are_text_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    say("a [bold]b[/]")
    show_table(("x", "y"), [("[red]v", 0.123456)])
    text = capsys.readouterr().out
    assert "a [bold]b[/]" in text
    assert "[red]v" in text
    assert "0.1235" in text
