"""What preparing a recipe's data will do, checked before any work starts: files, kinds of record, fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from cairn.config.home import token_cache
from cairn.config.recipe import Recipe
from cairn.data.chunks import CHUNK_CHARACTERS, CHUNK_RECORDS, Shaping, kind_of_record
from cairn.data.conversion import converted
from cairn.data.datasets import DataFile, data_files, validation_files
from cairn.data.documents import FormatChoice, read_records
from cairn.data.drops import Rejected, is_unusable, told
from cairn.data.fingerprint import fingerprint
from cairn.data.manifest import Manifest
from cairn.data.reading import Reading, hold_outs
from cairn.data.sources.files import size_of
from cairn.data.sources.location import Location
from cairn.errors import DataError, UserError
from cairn.plugins import STAGES
from cairn.records import KINDS, Document, Record

PEEK_RECORDS = 1000
"""Lines tried for a first record of each file; a file that has none there is judged when it is read."""


@dataclass(frozen=True)
class Plan:
    """`sizes` are the bytes on disk of each file, `datasets` the number of its entry of data.train."""

    readings: tuple[Reading, ...]
    sizes: tuple[int, ...]
    datasets: tuple[int, ...]
    shaping: Shaping
    settings: dict[str, Any]
    fingerprint: str
    tokenizer: Any
    validation: tuple[Reading, ...]
    max_bad_fraction: float

    @property
    def folder(self) -> Path:
        """Where the shards lie when they are done."""
        return token_cache() / self.fingerprint

    def manifest(self, summaries: Sequence[Any]) -> Manifest:
        """The counts of some chunks, or of all."""
        return Manifest.of(
            summaries,
            fingerprint=self.fingerprint,
            settings=self.settings,
            sequence_length=self.shaping.sequence_length,
            paths=[reading.path for reading in self.readings],
        )

    def check(self, manifest: Manifest, *, so_far: bool = False) -> None:
        """A DataError where too little of the data is usable; `so_far`: more is to come."""
        where = ", ".join(reading.path for reading in self.readings)
        bad = sum(count for reason, count in manifest.drops.items() if is_unusable(reason))
        reasons = "; ".join(f"{reason}: {count}" for reason, count in manifest.drops.items()) or "there were no lines"
        shown = told(manifest.examples)
        if manifest.rows == 0 and not so_far:
            raise DataError(
                f"nothing to train on in {manifest.records} records ({reasons})",
                where=where,
                next_step=f"mend these first:{shown}"
                if shown
                else "look at data.subsets, data.sequence_length and data.truncation",
            )
        if not so_far and 0 in manifest.judged.values():
            raise DataError(
                f"{manifest.judged['good']} answers are called good and {manifest.judged['bad']} bad: "
                "without both there is nothing to tell apart",
                where=where,
                next_step="add answers of the other kind, or a preference set, whose pairs are one of each; "
                "good answers alone are learnt by stage.name=sft",
            )
        if bad > self.max_bad_fraction * manifest.records:
            raise DataError(
                f"{bad} of {manifest.records} records are unusable, data.max_bad_fraction allows "
                f"{self.max_bad_fraction:g} of them ({reasons})",
                where=where,
                next_step=f"mend the file, name another format, or raise data.max_bad_fraction; the first:{shown}",
            )


def make_plan(recipe: Recipe, tokenizer: Any) -> Plan:
    """Resolve and peek into the files of a recipe. Raises UserError, with what to do, before any work starts."""
    data = recipe.data
    kind = kind_eaten(recipe.stage.name, recipe.stage.source)
    documents = KINDS[kind] is Document
    files = data_files(data, documents=documents)
    sizes = tuple(size_of(file.location) for file in files)
    for file in files:
        _check_kind(file.location, file.format, kind, recipe)
    shaping = Shaping(data.sequence_length, data.truncation, data.packing, data.train_on)
    settings = {
        "formats": [file.format for file in files],
        "kind": kind,
        "limits": [file.limit for file in files],
        "datasets": [file.dataset for file in files],
        "subsets": list(data.subsets),
        "sequence_length": data.sequence_length,
        "truncation": data.truncation,
        "train_on": data.train_on,
        "packing": data.packing,
        "hold_out": data.hold_out,
        "chunk": [CHUNK_RECORDS, CHUNK_CHARACTERS],
        **({"by_subset": True} if data.mixture else {}),
    }

    return Plan(
        readings=_trained(recipe, files, sizes),
        sizes=sizes,
        datasets=tuple(file.dataset for file in files),
        shaping=shaping,
        settings=settings,
        fingerprint=fingerprint([file.location for file in files], settings, tokenizer, whole=not data.streaming),
        tokenizer=tokenizer,
        validation=evaluated(recipe),
        max_bad_fraction=data.max_bad_fraction,
    )


def evaluated(recipe: Recipe) -> tuple[Reading, ...]:
    """What is evaluated and never trained on: `data.validation`, and what `data.hold_out` keeps of the files."""
    data, documents = recipe.data, KINDS[kind_eaten(recipe.stage.name, recipe.stage.source)] is Document
    validation = _readings(recipe, validation_files(data, documents=documents))
    if not data.hold_out:
        return validation
    files = data_files(data, documents=documents)
    trained = _trained(recipe, files, [size_of(file.location) for file in files])
    return (*validation, *(replace(one, held_out=True) for one in trained))


def _trained(recipe: Recipe, files: Sequence[DataFile], sizes: Sequence[int]) -> tuple[Reading, ...]:
    rules = hold_outs(recipe.data.hold_out, sizes)
    return tuple(replace(one, hold_out=rule) for one, rule in zip(_readings(recipe, files), rules, strict=True))


def _readings(recipe: Recipe, files: Sequence[DataFile]) -> tuple[Reading, ...]:
    data, kind = recipe.data, kind_eaten(recipe.stage.name, recipe.stage.source)
    return tuple(
        Reading(
            i,
            str(file.location),
            file.format,
            file.limit,
            data.subsets,
            kind,
            data.train_on,
            by_subset=data.mixture is not None,
        )
        for i, file in enumerate(files)
    )


def _check_kind(file: Location, format: FormatChoice, kind: str, recipe: Recipe) -> None:
    """The first record of a file is of the kind that the stage eats."""
    peeked = islice(read_records([file], format, limit=1), PEEK_RECORDS)
    first: Record | None = next((record for record in peeked if not isinstance(record, Rejected)), None)
    if first is None or converted(first, kind, recipe.data.train_on) is not None:
        return
    fitting = [name for name in STAGES.names() if converted(first, kind_eaten(name), recipe.data.train_on)]
    ways = [f"stage.name={' or '.join(fitting)}"] if fitting else []
    if converted(first, kind, "chosen"):
        ways.append("data.train_on=chosen to learn the preferred answers")
    raise UserError(
        f"stage '{recipe.stage.name}' needs records of kind {kind}, these are of kind {kind_of_record(first)}",
        where=str(first.source),
        next_step=", or ".join(["use other files", *ways]),
    )


def kind_eaten(stage: str, source: str | None = None) -> str:
    """The kind of record that a stage eats, as in KINDS."""
    return str(STAGES.load(stage, source).record.__name__.lower())
