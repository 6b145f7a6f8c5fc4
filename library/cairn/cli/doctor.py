"""`cairn doctor`: what is here, and what will not work and why."""

from __future__ import annotations

NAME = "doctor"


def command() -> None:
    """Print versions, devices and compiler, and what will not work and why."""
    from cairn.cli.terminal import say, show_table
    from cairn.cluster.doctor import examine

    findings = examine()
    show_table(("what", "found", ""), [(f.what, f.found, "" if f.works else "!") for f in findings])
    broken = [finding for finding in findings if not finding.works]
    say("")
    say("what will not work:" if broken else "nothing is missing")
    for finding in broken:
        say(f"  {finding.what}: {finding.consequence}")
