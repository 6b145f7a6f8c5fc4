"""`cairn data inspect`: what is in the files, before anything is trained on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.data.encoding import Encoder
    from cairn.data.inspection import FileFinding, Inspection, Shown

NAME = "inspect"
Policy = Literal["drop", "keep_start", "keep_end"]
Answers = Literal["all", "last"]


def command(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders or globs; hf://, s3://, gs://.")
    ],
    model: Annotated[str | None, typer.Option(help="Also show the text that this model would be trained on.")] = None,
    format: Annotated[str, typer.Option(help="A format's name or YAML; auto detects it.")] = "auto",
    length: Annotated[int, typer.Option(min=1, help="Tokens in a row, as data.sequence_length.")] = 1024,
    truncation: Annotated[Policy, typer.Option(help="As data.truncation.")] = "drop",
    template: Annotated[str | None, typer.Option(help="As data.template, for a model without one.")] = None,
    train_on: Annotated[Answers, typer.Option(help="As data.train_on.")] = "all",
    records: Annotated[int, typer.Option(min=1, help="Records looked at in each file.")] = 1000,
    samples: Annotated[int, typer.Option(min=0, help="Records shown of each format.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the detected format, records, and the text that would be trained, with counts."""
    import json

    from cairn.cli.terminal import output
    from cairn.data.inspection import inspect as look

    encoder = _encoder(model, template, length, truncation, train_on) if model else None
    found = look(paths, format=format, encoder=encoder, records=records, samples=samples)
    if as_json:
        output.print(json.dumps(found.plain(), ensure_ascii=False, indent=2), markup=False)
    else:
        _print(found)


def _encoder(model: str, template: str | None, length: int, truncation: Policy, train_on: Answers) -> Encoder:
    from cairn.data.encoding import Encoder
    from cairn.data.named_templates import choose_template
    from cairn.models.load import load_tokenizer

    tokenizer = load_tokenizer(model)
    if template is not None:
        choose_template(tokenizer, template, where=model)
    return Encoder(tokenizer, length, truncation, train_on=train_on)


def _print(found: Inspection) -> None:
    from cairn.cli.terminal import output, say, show_table

    for file in found.files:
        output.print(file.file, markup=False, style="bold")
        for line in _facts(file):
            say(f"  {line}")
    if len(found.formats) > 1:
        say("")
        columns = ("files", "records", "dropped")
        rows = [(name, *(counts[column] for column in columns)) for name, counts in found.formats.items()]
        show_table(("format", *columns), rows)
    for shown in found.samples:
        say("")
        _print_sample(shown)


def _facts(file: FileFinding) -> Iterator[str]:
    if file.problem:
        yield file.problem
        return
    facts = [str(file.format)]
    if file.confidence is not None:
        facts.append(f"{file.confidence:.0%} sure, next best: {file.runner_up or 'none'}")
    facts.append(f"{file.records:,} records")
    if file.tokens:
        facts.append(f"{file.tokens:,} tokens, {file.trained_tokens:,} trained")
    yield " · ".join(facts)
    if file.dropped:
        yield f"dropped: {_counted(file.dropped)}"
    yield from (f"e.g. {example}" for examples in file.examples.values() for example in examples)
    if file.cuts:
        yield f"cut: {_counted(file.cuts)}"


def _counted(reasons: dict[str, int]) -> str:
    return "; ".join(f"{reason}: {count}" for reason, count in reasons.items())


def _print_sample(shown: Shown) -> None:
    from rich.text import Text

    from cairn.cli.terminal import output

    source = shown.record.source
    output.print(f"{source} · {shown.format} · {type(shown.record).__name__.lower()}", markup=False, style="bold")
    if not shown.renderings:
        for label, text in _spoken(shown.record):
            output.print(Text.assemble((f"{label}: ", "cyan"), text))
    for rendering in shown.renderings:
        title = f"{rendering.name} " if rendering.name else ""
        cut = f" · {rendering.cut}" if rendering.cut else ""
        output.print(
            f"{title}{rendering.tokens} tokens, {rendering.trained_tokens} trained{cut}", style="dim", markup=False
        )
        output.print(
            Text.assemble(*(_marked(piece, trained, output.is_terminal) for piece, trained in rendering.pieces))
        )
    if shown.dropped:
        output.print(f"would be dropped: {shown.dropped}", markup=False, style="yellow")


def _marked(piece: str, trained: bool, colour: bool) -> tuple[str, str]:
    """A piece of text; what is trained in colour, or in ⟦brackets⟧ where there is none."""
    if not trained:
        return piece, ""
    return (piece, "black on green") if colour else (f"⟦{piece}⟧", "")


def _spoken(record: Any) -> list[tuple[str, str]]:
    """A record's parts as (who, what)."""
    if hasattr(record, "text"):
        return [(record.subset, record.text)]
    groups = [("", "messages"), ("", "prompt"), ("chosen ", "chosen"), ("rejected ", "rejected"), ("", "answer")]
    said = [
        (f"{prefix}{message.role}", message.content or str(message.fields.get("tool_calls", "")))
        for prefix, name in groups
        for message in (getattr(record, name, None) or ())
        if not isinstance(message, str)
    ]
    if isinstance(getattr(record, "answer", None), str):
        said.append(("answer to check", record.answer))
    if hasattr(record, "good"):
        said.append(("judged", "good" if record.good else "bad"))
    return said
