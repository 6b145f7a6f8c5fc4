"""Which files of a dataset folder are the training data, and which are no data at all.

Names are read as the Hugging Face hub reads them: a path says a split where a word of it is one (`train.jsonl`,
`data/test-00000-of-00002.parquet`, `validation/a.txt`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence

WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
INSTEAD: Mapping[str, Sequence[str]] = {
    "train": ("train",),
    "validation": ("validation", "test"),
    "test": ("test", "validation", "train"),
}
"""What is used for a split that a folder does not have, the first that it has."""

UNFINISHED = "current_chunk_incomplete"
"""The name of an archive that lm_dataformat is still writing."""

NEVER_DATA = (
    "dataset_info*.json",
    "dataset_dict.json",
    "state.json",
    "cache-*.arrow",
    "indices-*.arrow",
    f"{UNFINISHED}*",
)
"""What `datasets` keeps beside its data, and unfinished archives."""

ABOUT_DATA = ("readme*", "license*", "licence*", "changelog*", "contributing*", "citation*", "requirements*.txt")
"""Not data beside files that hold rows; documents of their own in a folder of documents."""

_PATTERNS = {
    split: re.compile(rf"(?:^|[-._ 0-9/])(?:{'|'.join(words)})(?=$|[-._ 0-9/])", re.IGNORECASE)
    for split, words in WORDS.items()
}


def split_of(path: str) -> str | None:
    """The split that a path within a folder names; the last one where it names several."""
    found = [(match.start(), split) for split, pattern in _PATTERNS.items() for match in pattern.finditer(path)]
    return max(found)[1] if found else None


def chosen_split(paths: Sequence[str], wanted: str) -> tuple[str | None, list[str]]:
    """(the split to use or None for all files, the splits that the paths name)."""
    named = sorted({split for path in paths if (split := split_of(path))})
    return next((split for split in INSTEAD[wanted] if split in named), None), named


def is_never_data(path: str) -> bool:
    """Whether a file only describes others or is half written."""
    return _matches(path, NEVER_DATA)


def is_about_data(path: str) -> bool:
    """Whether a file is the prose of a dataset folder."""
    return _matches(path, ABOUT_DATA)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    name = path.rsplit("/", 1)[-1].lower()
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
