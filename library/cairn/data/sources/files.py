"""Which files a recipe means, and what each of them is by its name."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from cairn.errors import DataError

CONTENTS = {".jsonl": "lines", ".ndjson": "lines", ".json": "json", ".txt": "text"}
COMPRESSIONS = {".zst": "zst", ".gz": "gz"}
UNFINISHED = "current_chunk_incomplete"
"""The name of an archive that lm_dataformat is still writing."""


def kind_of(path: Path) -> tuple[str, str]:
    """("lines" | "json" | "text", "" | "zst" | "gz") by the suffixes; DataError for any other."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = COMPRESSIONS.get(suffixes[-1], "") if suffixes else ""
    if compression:
        suffixes.pop()
    content = CONTENTS.get(suffixes[-1], "") if suffixes else ""
    if not content:
        raise DataError(
            f"'{path.name}' has no known suffix",
            where=str(path),
            next_step=f"use {', '.join(CONTENTS)}, each also with {' or '.join(COMPRESSIONS)}",
        )
    return content, compression


def resolve(patterns: Iterable[str | Path]) -> list[Path]:
    """The files of paths and globs (`**` too): in the order given, sorted within a glob, each once.

    Raises DataError for a pattern without a file, a folder, an unreadable file, or an unknown suffix.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        for path in _matches(str(pattern)):
            found.setdefault(path)
    return list(found)


def _matches(pattern: str) -> list[Path]:
    expanded = os.path.expanduser(pattern)
    path = Path(expanded)
    if path.is_dir():
        raise DataError(
            "this is a folder", where=pattern, next_step=f"name its files: {expanded.rstrip('/')}/*.jsonl.zst"
        )
    literal = path.exists() or not glob.has_magic(expanded)
    paths = [path] if literal else sorted(Path(p) for p in glob.glob(expanded, recursive=True))
    paths = [path for path in paths if not path.name.startswith(UNFINISHED) and not path.is_dir()]
    if not paths:
        raise DataError(
            "no file matches", where=pattern, next_step="check the path; relative ones start at the working folder"
        )
    for path in paths:
        _check_readable(path)
    return paths


def _check_readable(path: Path) -> None:
    if not path.exists():
        nearby = sorted(p.name for p in path.parent.iterdir())[:5] if path.parent.is_dir() else []
        advice = f"its folder holds {', '.join(nearby)}" if nearby else "its folder does not exist either"
        raise DataError("there is no such file", where=str(path), next_step=advice)
    if not os.access(path, os.R_OK):
        raise DataError("no permission to read the file", where=str(path), next_step=f"chmod +r {path}")
    kind_of(path)
