"""The report of an evaluation: a table for people, `report.json` and `documents.jsonl` for programs.

`report.json` is written last and an older one is removed first, so where it stands, all of the report stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cairn.errors import StorageError, UserError
from cairn.evaluation.aggregate import Aggregate, aggregate, by_subset
from cairn.evaluation.scores import LN_2, DocumentScore, Totals, totals
from cairn.metrics import Metric
from cairn.store.durable import replace_file

REPORT_FILE = "report.json"
DOCUMENTS_FILE = "documents.jsonl"


@dataclass(frozen=True)
class Report:
    """What was scored (`scores`, sorted by file and line), how (`settings`), and in how many seconds.

    `by_position`: nats and tokens by position bucket (`cairn.evaluation.pieces.position_bucket`), or None.
    """

    scores: tuple[DocumentScore, ...]
    settings: Mapping[str, Any]
    seconds: float
    by_position: Mapping[int, Metric] | None = None
    warnings: tuple[str, ...] = field(default=())

    @cached_property
    def bits_per_byte(self) -> Aggregate:
        """micro, pile_weighted, macro and per_subset."""
        return aggregate(self.scores)

    @cached_property
    def totals(self) -> Totals:
        """Sums over all documents."""
        return totals(self.scores)

    @cached_property
    def subsets(self) -> dict[str, Totals]:
        """Sums by subset."""
        return by_subset(self.scores)

    def plain(self) -> dict[str, Any]:
        """The content of `report.json`."""
        figures, sums = self.bits_per_byte, self.totals
        content: dict[str, Any] = {
            "bits_per_byte": {
                "micro": figures.micro,
                "pile_weighted": figures.pile_weighted,
                "macro": figures.macro,
                "per_subset": figures.per_subset,
            },
            "byte_perplexity": sums.byte_perplexity,
            "nats": sums.nats,
            "bytes": sums.bytes,
            "tokens": sums.tokens,
            "documents": sums.documents,
            "subsets": {name: _plain(total) for name, total in self.subsets.items()},
            "without_pile_weight": list(figures.unweighted),
            "seconds": round(self.seconds, 3),
            "tokens_per_s": round(sums.tokens / self.seconds, 1),
            "settings": dict(self.settings),
            "warnings": list(self.warnings),
        }
        if self.by_position is not None:
            content["bits_per_token_by_position"] = list(_positions(self.by_position))
        return content

    def write(self, folder: str | Path) -> Path:
        """Write both files into `folder`; returns the path of `report.json`. StorageError where the disk fails."""
        folder = Path(folder)
        lines = "".join(json.dumps(_line(score), ensure_ascii=False) + "\n" for score in self.scores)
        text = json.dumps(self.plain(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / REPORT_FILE).unlink(missing_ok=True)
            replace_file(folder / DOCUMENTS_FILE, lines)
            replace_file(folder / REPORT_FILE, text)
        except OSError as error:
            raise StorageError(
                f"the report could not be written ({error.strerror})",
                where=str(folder),
                next_step="free space or choose another --output, then run again",
            ) from error
        return folder / REPORT_FILE

    def table(self) -> Any:
        """The report as rich tables."""
        from rich.console import Group

        from cairn.evaluation.table import figures_table, position_table

        parts = [figures_table(self)]
        if self.by_position is not None:
            parts.append(position_table(list(_positions(self.by_position))))
        return Group(*parts, *(f"[yellow]warning:[/] {warning}" for warning in self.warnings))


def check_output(folder: str | Path) -> Path:
    """Make the output folder and write to it once, so that a long evaluation does not end at a closed door."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write there ({error.strerror})", where=str(folder), next_step="choose another --output"
        ) from None
    return folder


def _line(score: DocumentScore) -> dict[str, Any]:
    return {
        "file": score.file,
        "line": score.line,
        "subset": score.subset,
        "bytes": score.bytes,
        "tokens": score.tokens,
        "nats": score.nats,
    }


def _plain(total: Totals) -> dict[str, Any]:
    return {
        "bits_per_byte": total.bits_per_byte,
        "nats": total.nats,
        "bytes": total.bytes,
        "tokens": total.tokens,
        "documents": total.documents,
    }


def _positions(buckets: Mapping[int, Metric]) -> Iterator[dict[str, Any]]:
    for bucket in sorted(buckets):
        first = 2 ** (bucket - 1) if bucket else 0
        metric = buckets[bucket]
        yield {
            "from": first,
            "to": 2**bucket - 1,
            "tokens": int(metric.weight),
            "bits_per_token": metric.value / LN_2,
        }
