"""The held-out records that a run looks at while it trains: a fixed sample of `data.validation` and `data.hold_out`.

Files and subsets take turns, so a file sorted by subset is no trap. Cost: at the start up to `SEARCHED` records are read
for every one that is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, islice, zip_longest

from cairn.data.drops import Rejected
from cairn.data.reading import Reading, records_of
from cairn.records import Record
from cairn.training.run import Run

SEARCHED = 50
"""Records of each file looked at for every one that is kept."""


def held_out_records(run: Run, count: int) -> list[Record]:
    """`count` records, or all that there are; the same on every worker."""
    return choose(_records(run, count), count)


def choose(records: Iterable[Record], count: int) -> list[Record]:
    """`count` records, the subsets of each file taking turns in the order in which they first appear."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.source.file, record.subset), []).append(record)
    turns = chain.from_iterable(zip_longest(*groups.values()))
    return [record for record in turns if record is not None][:count]


def _records(run: Run, wanted: int) -> Iterator[Record]:
    split = sum(reading.held_out for reading in run.validation)
    for reading in run.validation:
        yield from _few_of(reading, wanted, split)


def _few_of(reading: Reading, wanted: int, split: int) -> Iterator[Record]:
    """The first records of a file; of `split` training files so many that all together have some to choose from."""
    enough: float = SEARCHED * wanted
    if reading.held_out:
        enough = max(wanted, enough * reading.hold_out.share) / split
    records = (record for record in records_of(reading) if not isinstance(record, Rejected))
    return islice(records, math.ceil(enough))
