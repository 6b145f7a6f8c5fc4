"""The sample corpus: tens of MB in the Pile's own layout, and instruction data, made from the Python installation.

`train/00.jsonl.zst`, `val.jsonl.zst` and `test.jsonl.zst` hold lines `{"text", "meta": {"pile_set_name"}}` in one
zstd frame each, as the Pile does; the tags are stand-ins, listed in `report.json`. `quick.jsonl.zst` is a small even
part of val for a first measurement. The instruction data (signature → docstring) lies in three formats, and once more
as preferences (`cairn.data.sample_preferences`), `*_heldout` from modules that no training file has seen. Takes about
half a minute, once per Python version.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from cairn.data.sample_preferences import write_preferences
from cairn.data.stdlib_text import STAND_INS, Example, Group, Origin, Piece, origins

BUILDER_VERSION = 2
REPORT = "report.json"
FILES = {"train": "train/00.jsonl.zst", "val": "val.jsonl.zst", "test": "test.jsonl.zst"}
QUICK_FILE = "quick.jsonl.zst"
QUICK_BYTES = 1500
QUICK_PER_TAG = 12
HELD_OUT_EVERY = 16
"""One group in this many goes to val and one to test, in every kind of group."""

TASK = "Write the docstring of this Python function."


class SampleReport(msgspec.Struct, frozen=True):
    """What was built: documents and UTF-8 bytes of text per file and tag, examples per instruction split."""

    identity: str
    stand_ins: dict[str, str]
    documents: dict[str, dict[str, int]]
    text_bytes: dict[str, dict[str, int]]
    examples: dict[str, int]


def build_corpus(folder: Path, *, fraction: float = 1.0) -> SampleReport:
    """Build the corpus in `folder` unless this Python version's lies there already.

    `fraction` of every kind of text is used. The report is written last.
    """
    identity = f"{BUILDER_VERSION}, Python {platform.python_version()}, fraction {fraction:g}"
    path = folder / REPORT
    if path.exists():
        report = msgspec.json.decode(path.read_bytes(), type=SampleReport)
        if report.identity == identity:
            return report
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        report = _build(staging, identity, fraction)
        path.unlink(missing_ok=True)
        for built in sorted(p for p in staging.rglob("*") if p.is_file() and p.name != REPORT):
            target = folder / built.relative_to(staging)
            target.parent.mkdir(parents=True, exist_ok=True)
            built.replace(target)
        (staging / REPORT).replace(path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return report


def _build(folder: Path, identity: str, fraction: float) -> SampleReport:
    splits = _split(fraction)
    pieces = _distinct_pieces(splits)
    examples = _distinct_examples(splits)
    (folder / "train").mkdir()
    written = {FILES[split]: pieces[split] for split in FILES} | {QUICK_FILE: _quick(pieces["val"])}
    for name, chosen in written.items():
        _write_pile(folder / name, chosen)
    _write_instructions(folder, "", examples["train"])
    _write_instructions(folder, "_heldout", examples["val"])
    report = SampleReport(
        identity=identity,
        stand_ins=STAND_INS,
        documents={name: _count(chosen, lambda piece: 1) for name, chosen in written.items()},
        text_bytes={name: _count(chosen, lambda piece: len(piece.text.encode())) for name, chosen in written.items()},
        examples={"train": len(examples["train"]), "heldout": len(examples["val"])},
    )
    (folder / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    return report


def _count(pieces: Iterable[Piece], measure: Any) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts[piece.tag] += measure(piece)
    return dict(sorted(counts.items()))


def _split(fraction: float) -> dict[str, list[Group]]:
    """Whole groups to splits, evenly within each kind, in an order that only their names decide."""
    by_kind: dict[str, list[Origin]] = defaultdict(list)
    for origin in origins():
        by_kind[origin.kind].append(origin)
    splits: dict[str, list[Group]] = {split: [] for split in FILES}
    for kind in sorted(by_kind):
        shuffled = sorted(by_kind[kind], key=lambda origin: _digest(origin.name))
        for rank, origin in enumerate(shuffled[: max(2 * HELD_OUT_EVERY, round(len(shuffled) * fraction))]):
            split = {0: "val", 1: "test"}.get(rank % HELD_OUT_EVERY, "train")
            splits[split].append(origin.read())
    return splits


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _distinct_pieces(splits: dict[str, list[Group]]) -> dict[str, list[Piece]]:
    """Each text once; one that a held-out split has is no training text."""
    seen: set[str] = set()
    out: dict[str, list[Piece]] = {}
    for split in ("test", "val", "train"):
        chosen = []
        for group in splits[split]:
            for piece in group.pieces:
                if piece.text not in seen:
                    seen.add(piece.text)
                    chosen.append(piece)
        out[split] = sorted(chosen, key=lambda piece: _digest(piece.text))
    return out


def _distinct_examples(splits: dict[str, list[Group]]) -> dict[str, list[Example]]:
    """Each docstring once, held-out ones first."""
    seen: set[str] = set()
    out: dict[str, list[Example]] = {}
    for split in ("test", "val", "train"):
        chosen = []
        for group in splits[split]:
            for example in group.examples:
                if example.docstring not in seen:
                    seen.add(example.docstring)
                    chosen.append(example)
        out[split] = sorted(chosen, key=lambda example: _digest(example.signature + example.docstring))
    return out


def _quick(pieces: Iterable[Piece]) -> list[Piece]:
    """Documents of val, long ones cut at a line end, the tags in turn, so that the first N are of every tag."""
    by_tag: dict[str, list[Piece]] = {tag: [] for tag in STAND_INS}
    for piece in pieces:
        text = piece.text.encode()
        if len(text) > QUICK_BYTES:
            cut = text[:QUICK_BYTES].rpartition(b"\n")[0]
            piece = Piece(piece.tag, cut.decode() + "\n")
        if len(piece.text) > 1 and len(by_tag[piece.tag]) < QUICK_PER_TAG:
            by_tag[piece.tag].append(piece)
    return [pieces[i] for i in range(QUICK_PER_TAG) for pieces in by_tag.values() if i < len(pieces)]


def _write_pile(path: Path, pieces: Iterable[Piece]) -> None:
    """One frame, level 3, no content size in the header: as the Pile's own shards."""
    compressor = zstandard.ZstdCompressor(level=3, write_content_size=False)
    with path.open("wb") as file, compressor.stream_writer(file) as stream:
        for piece in pieces:
            stream.write(json.dumps({"text": piece.text, "meta": {"pile_set_name": piece.tag}}).encode() + b"\n")


def _write_instructions(folder: Path, suffix: str, examples: list[Example]) -> None:
    alpaca = [{"instruction": TASK, "input": e.signature, "output": e.docstring} for e in examples]
    asked = [f"{TASK}\n{example.signature}" for example in examples]
    sharegpt = [
        {"conversations": [{"from": "human", "value": ask}, {"from": "gpt", "value": example.docstring}]}
        for ask, example in zip(asked, examples, strict=True)
    ]
    openai = [
        {"messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": example.docstring}]}
        for ask, example in zip(asked, examples, strict=True)
    ]
    (folder / f"alpaca{suffix}.json").write_text(json.dumps(alpaca, indent=1), encoding="utf-8")
    (folder / f"sharegpt{suffix}.json").write_text(json.dumps(sharegpt, indent=1), encoding="utf-8")
    (folder / f"openai{suffix}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in openai), encoding="utf-8")
    write_preferences(folder / f"preferences{suffix}.jsonl", examples, TASK)
