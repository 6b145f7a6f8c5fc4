"""The report as rich tables: a row a subset, then the three aggregates; and loss by position in the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from cairn.evaluation.scores import Totals

if TYPE_CHECKING:
    from cairn.evaluation.report import Report


def figures_table(report: Report) -> Table:
    """Documents, bytes, tokens, bits per byte and byte perplexity of each subset and of all."""
    adapter = report.settings.get("adapter")
    title = str(report.settings.get("model", "")) + (f" + {adapter}" if adapter else "")
    table = _table(title, "subset", "documents", "bytes", "tokens", "bits/byte", "perplexity")
    for name, total in report.subsets.items():
        table.add_row(name, *_cells(total))
    table.add_section()
    figures = report.bits_per_byte
    table.add_row("micro", *_cells(report.totals), style="bold")
    if figures.pile_weighted is not None:
        table.add_row("pile_weighted", "", "", "", f"{figures.pile_weighted:.4f}", "")
    table.add_row("macro", "", "", "", f"{figures.macro:.4f}", "")
    left_out = f" (none of {', '.join(figures.unweighted)})" if figures.unweighted else ""
    table.caption = f"perplexity: of a byte; micro: all bytes; pile_weighted: by the Pile's shares{left_out}; macro: mean of subsets"
    return table


def position_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Bits per token where the document's token number lies in a range."""
    table = _table("by position in the document", "token", "tokens", "bits per token")
    for row in rows:
        span = f"{row['from']:,}" if row["from"] == row["to"] else f"{row['from']:,}–{row['to']:,}"
        table.add_row(span, f"{row['tokens']:,}", f"{row['bits_per_token']:.4f}")
    return table


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _cells(total: Totals) -> list[str]:
    bpb, perplexity = total.bits_per_byte, total.byte_perplexity
    return [
        f"{total.documents:,}",
        f"{total.bytes:,}",
        f"{total.tokens:,}",
        "–" if bpb is None else f"{bpb:.4f}",
        "–" if perplexity is None else f"{perplexity:.4f}",
    ]
