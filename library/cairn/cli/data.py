"""`cairn data`: what is in the files, before anything is trained on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cairn.data.encoding import Encoder
    from cairn.data.inspection import Inspection, Shown

app = typer.Typer(help="Data: inspect.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """Data: inspect."""


@app.command("inspect")
def inspect(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders or globs; hf://, s3://, gs://.")
    ],
    model: Annotated[str | None, typer.Option(help="Also show the text that this model would be trained on.")] = None,
    format: Annotated[str, typer.Option(help="A format's name or YAML; auto detects it.")] = "auto",
    length: Annotated[int, typer.Option(min=1, help="Tokens in a row, as data.sequence_length.")] = 1024,
    truncation: Annotated[str, typer.Option(help="As data.truncation.")] = "drop",
    records: Annotated[int, typer.Option(min=1, help="Records looked at in each file.")] = 1000,
    samples: Annotated[int, typer.Option(min=0, help="Records shown of each format.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the detected format, records, and the text that would be trained, with counts."""
    import json

    from cairn.cli.terminal import output
    from cairn.data.inspection import inspect as look

    encoder = _encoder(model, length, truncation) if model else None
    found = look(paths, format=format, encoder=encoder, records=records, samples=samples)
    if as_json:
        output.print(json.dumps(found.plain(), ensure_ascii=False, indent=2), markup=False)
    else:
        _print(found)


def _encoder(model: str, length: int, truncation: str) -> Encoder:
    from cairn.config.recipe import Data
    from cairn.data.encoding import Encoder
    from cairn.errors import UserError, did_you_mean
    from cairn.models.load import load_tokenizer

    policies = Data.model_fields["truncation"].annotation.__args__  # type: ignore[union-attr]
    if truncation not in policies:
        raise UserError(
            f"there is no truncation '{truncation}'",
            where="--truncation",
            next_step=did_you_mean(truncation, policies),
        )
    return Encoder(load_tokenizer(model), length, truncation)  # type: ignore[arg-type]


def _print(found: Inspection) -> None:
    from cairn.cli.terminal import output, say, show_table

    rows = [
        (
            file.file,
            file.format or "unknown",
            "" if file.confidence is None else f"{file.confidence:.0%}",
            file.runner_up,
            file.records,
            "; ".join(f"{reason}: {count}" for reason, count in file.dropped.items()),
        )
        for file in found.files
    ]
    show_table(("file", "format", "confidence", "next best", "records", "dropped"), rows)
    if len(found.formats) > 1:
        show_table(
            ("format", "files", "records", "dropped"),
            [
                (name, *(counts[key] for key in ("files", "records", "dropped")))
                for name, counts in found.formats.items()
            ],
        )
    for file in found.files:
        for text in (file.problem, *file.examples.values()):
            if text:
                output.print(text, markup=False, style="yellow")
    for shown in found.samples:
        say("")
        _print_sample(shown)


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
        output.print(Text.assemble(*((piece, "black on green" if on else "") for piece, on in rendering.pieces)))
    if shown.dropped:
        output.print(f"would be dropped: {shown.dropped}", markup=False, style="yellow")


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
