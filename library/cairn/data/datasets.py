"""Which files a recipe trains on, and the format, limit and weight that hold for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn.config.data import Data, Dataset
from cairn.data.catalog import entries
from cairn.data.documents import FormatChoice
from cairn.data.sources.files import resolve
from cairn.data.sources.location import Location


@dataclass(frozen=True)
class DataFile:
    """A file of dataset number `dataset` (from 0, in the order of the entries)."""

    location: Location
    dataset: int
    format: FormatChoice
    limit: int | None


@dataclass(frozen=True)
class _Wanted:
    """A dataset before its files are looked for."""

    path: str
    split: str
    format: FormatChoice
    limit: int | None
    config: str | None = None


def data_files(data: Data, *, documents: bool) -> list[DataFile]:
    """The files of `data.train` in order, each once. `documents`: the stage eats plain text.

    Raises DataError for what cannot be found, and for a catalogue's entry that cannot be read.
    """
    return _files(data.train, data, "train", documents=documents)


def validation_files(data: Data, *, documents: bool) -> list[DataFile]:
    """The files of `data.validation`, likewise; of a folder those for validation."""
    return _files(data.validation, data, "validation", documents=documents)


def _files(listed: Sequence[str | Dataset], data: Data, split: str, *, documents: bool) -> list[DataFile]:
    found: dict[Location, DataFile] = {}
    for number, wanted in enumerate(_wanted(listed, data, split, documents=documents)):
        for location in resolve([wanted.path], split=wanted.split, config=wanted.config):
            found.setdefault(location, DataFile(location, number, wanted.format, wanted.limit))
    return list(found.values())


def weights(data: Data) -> tuple[float | None, ...]:
    """The weight of each dataset, none where its rows decide; a catalogue's entry gives its weight to every name."""
    found: list[float | None] = []
    for entry in data.train:
        names = entry.name if isinstance(entry, Dataset) else None
        count = len(names) if isinstance(names, tuple) else 1
        found += [entry.weight if isinstance(entry, Dataset) else None] * count
    return tuple(found)


def _wanted(listed: Sequence[str | Dataset], data: Data, split: str, *, documents: bool) -> Iterator[_Wanted]:
    for entry in listed:
        if isinstance(entry, str):
            yield _Wanted(entry, split, data.format, data.limit)
        elif entry.path is not None:
            yield _Wanted(entry.path, split, entry.format or data.format, entry.limit or data.limit)
        else:
            assert entry.catalog is not None, "checked with the recipe"
            names = entry.name if isinstance(entry.name, str) else list(entry.name or ())
            for known in entries(entry.catalog, names, documents=documents):
                limit = entry.limit or known.limit or data.limit
                yield _Wanted(known.place, known.split, entry.format or known.format, limit, known.config)
