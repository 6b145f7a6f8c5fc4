"""Which files a recipe trains on, and the format, limit and weight that hold for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cairn.config.recipe import Data, Dataset
from cairn.data.catalog import entries
from cairn.data.documents import FormatChoice
from cairn.data.sources.files import resolve
from cairn.data.sources.location import Location


@dataclass(frozen=True)
class DataFile:
    """A file of dataset number `dataset` (from 0, in the order of data.train)."""

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


def data_files(data: Data, *, documents: bool) -> list[DataFile]:
    """The files of `data.train` in order, each once. `documents`: the stage eats plain text.

    Raises DataError for what cannot be found, and for a catalogue's entry that cannot be read.
    """
    found: dict[Location, DataFile] = {}
    for number, wanted in enumerate(_wanted(data, documents=documents)):
        for location in resolve([wanted.path], split=wanted.split):
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


def _wanted(data: Data, *, documents: bool) -> Iterator[_Wanted]:
    for entry in data.train:
        if isinstance(entry, str):
            yield _Wanted(entry, "train", data.format, data.limit)
        elif entry.path is not None:
            yield _Wanted(entry.path, "train", entry.format or data.format, entry.limit or data.limit)
        else:
            assert entry.catalog is not None, "checked with the recipe"
            names = entry.name if isinstance(entry.name, str) else list(entry.name or ())
            for listed in entries(entry.catalog, names, documents=documents):
                path = "/".join(filter(None, (listed.path, listed.folder, listed.subset)))
                limit = entry.limit or listed.limit or data.limit
                yield _Wanted(path, listed.split, entry.format or listed.format, limit)
