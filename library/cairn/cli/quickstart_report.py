"""What the quickstart found, for a person (a page of text) and for a program (`quickstart.json`)."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from cairn.cli.quickstart import ADAPTED, RECIPE, Findings

TRIES = (
    "train longer:        cairn train {recipe} training.steps=100 storage.run=longer",
    "search a learning rate: cairn search jobs/recipes/search.yaml",
    "ask it yourself:     cairn serve --model {model}",
)


def write(findings: Findings) -> Path:
    """`quickstart.json` under the data home."""
    from cairn.config import home
    from cairn.store.durable import replace_file

    path = home.home() / "quickstart.json"
    replace_file(path, json.dumps(asdict(findings), indent=1, ensure_ascii=False) + "\n")
    return path


def show(findings: Findings, path: Path) -> None:
    """The report on the terminal."""
    from cairn.cli.terminal import say, show_table

    say("")
    show_table(
        ("bits per byte (lower is better)", "before", "after", "change"),
        [*_rows(findings)],
        title="What the adapter changed on text it has not seen",
    )
    say(verdict(findings))
    say("\nThe same question over HTTP")
    for who, text in findings.answers.items():
        say(f"\n[{who}]\n{text.strip()}")
    say("\nWhere everything lies")
    for what, place in (*findings.places.items(), ("figures", str(path))):
        say(f"  {what:13} {place}")
    say("\nThree things to try next")
    for text in next_steps():
        say(f"  {text}")
    say(
        f"\n{sum(findings.seconds.values()):.0f} s in all: {', '.join(f'{k} {v}' for k, v in findings.seconds.items())}"
    )


def next_steps() -> tuple[str, ...]:
    """Commands that work as they stand, in the repository."""
    from cairn.config import home

    model = home.models() / "SmolLM2-135M-Instruct"
    return tuple(text.format(recipe=RECIPE, model=model) for text in TRIES)


def verdict(findings: Findings) -> str:
    """One honest sentence: what became better, and what became worse by the way."""
    before, after = findings.bpb_before["per_subset"], findings.bpb_after["per_subset"]
    change = after[ADAPTED] / before[ADAPTED] - 1
    worse = [name for name in before if name != ADAPTED and after[name] > before[name]]
    gained = f"{-change:.1%} fewer bits" if change < 0 else f"no gain: {change:.1%} more bits"
    cost = f"; more bits on {', '.join(worse)}" if worse else "; no other subset lost"
    return f"On what it was trained for: {gained} per byte{cost}."


def _rows(findings: Findings) -> list[tuple[object, ...]]:
    before, after = findings.bpb_before, findings.bpb_after
    rows = [(name, old, after["per_subset"][name]) for name, old in before["per_subset"].items()]
    rows.append(("all bytes (micro)", before["micro"], after["micro"]))
    return [(name, old, new, f"{new / old - 1:+.1%}") for name, old, new in rows]
