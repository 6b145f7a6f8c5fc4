"""What is read of one file, and for whom: training and evaluation share a file's records without an overlap.

Which records are held out is decided record by record, from the file's number and the record's place in it, so neither
the order of reading nor the number of workers matters, a moved file is split as before, and what came of one row stays
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from cairn.data.documents import FormatChoice, read_records
from cairn.data.drops import DropReason, Rejected
from cairn.data.encoding import TrainOn
from cairn.data.sources.location import TREE, Location
from cairn.records import Record, Source


@dataclass(frozen=True)
class HoldOut:
    """What is kept for evaluation: a share of the records, or the first so many."""

    share: float = 0.0
    first: int = 0


@dataclass(frozen=True)
class Reading:
    """What to read of one file. `kind` is the record that the stage eats, `train_on` says how to make it of others.

    `held_out`: those records are meant that are held out, rather than the others. `by_subset`: chunks hold one subset.
    """

    file_index: int
    path: str
    format: FormatChoice
    limit: int | None
    subsets: tuple[str, ...]
    kind: str
    train_on: TrainOn = "all"
    hold_out: HoldOut = HoldOut()
    held_out: bool = False
    by_subset: bool = False


def records_of(reading: Reading, on_bytes: Callable[[int], None] | None = None) -> Iterator[Record | Rejected]:
    """The records that are meant; to training those that are held out are rejected, so that they are counted.

    The first so many are had without reading on. Raises DataError as `read_records` does.
    """
    location, rule = Location(reading.path), reading.hold_out
    records = read_records([location], reading.format, reading.limit, reading.subsets, on_bytes=on_bytes)
    if rule == HoldOut():
        yield from () if reading.held_out else records
        return
    taken, last = 0, None
    for record in records:
        if isinstance(record, Rejected):
            yield record
            continue
        held = taken < rule.first or record.source == last or _is_drawn(reading, location, record.source)
        if held:
            taken, last = taken + 1, record.source
        elif reading.held_out and not rule.share:
            return
        if held == reading.held_out:
            yield record
        elif held:
            yield Rejected(record.source, DropReason.HELD_OUT)


def _is_drawn(reading: Reading, location: Location, source: Source) -> bool:
    """Whether the record is among the share that is held out: as often as that, for ever the same."""
    if not reading.hold_out.share:
        return False
    inside = source.file.removeprefix(location.url.removeprefix(TREE)) if location.is_tree else ""
    key = f"{reading.file_index}:{inside}:{source.line}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest()) < reading.hold_out.share * 2**64


def hold_outs(amount: float, sizes: Sequence[int]) -> list[HoldOut]:
    """The rule of each of the files of `sizes` bytes: `amount` as in `data.hold_out`.

    A number of records is divided in proportion to the sizes, by the largest remainders.
    """
    if amount < 1:
        return [HoldOut(share=amount)] * len(sizes)
    quotas = [amount * size / max(sum(sizes), 1) for size in sizes]
    whole = [int(quota) for quota in quotas]
    order = sorted(range(len(sizes)), key=lambda i: (whole[i] - quotas[i], i))
    for i in order[: int(amount) - sum(whole)]:
        whole[i] += 1
    return [HoldOut(first=count) for count in whole]
