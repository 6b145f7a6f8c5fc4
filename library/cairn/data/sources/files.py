"""Which files a recipe means: paths, globs, folders and source trees, here or on any file system that fsspec knows."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from cairn.data.sources.card import CARD, card_files
from cairn.data.sources.kinds import find_kind, kind_of, known_suffixes
from cairn.data.sources.location import TREE, Location
from cairn.data.sources.splits import UNFINISHED, chosen_split, is_about_data, is_never_data, split_of
from cairn.data.sources.tree import tree_files, walk
from cairn.errors import DataError


def resolve(
    patterns: Iterable[Location | str | Path], *, split: str | None = None, config: str | None = None
) -> list[Location]:
    """The files of paths, globs (`**` too) and folders: in the order given, sorted within each, each once.

    A folder stands for the files of known kinds below it, without hidden ones and without what only describes a
    dataset (`splits.py`). With `split` (train, validation or test), those of that split alone where the folder's card
    or any file's name says a split, for validation else test, for test else validation, else train; all files else. A folder of source files, or any
    folder after `tree:`, is one location whose rows are its files; beside files of rows, source files are passed over.
    `config`: a configuration that a folder's card lists, rather than its default one. A Location is taken as found
    before.

    Raises DataError for a pattern without a file, an unreadable file, an unknown suffix, or a folder without that split
    or configuration.
    """
    found: dict[Location, None] = {}
    for pattern in patterns:
        for location in [pattern] if isinstance(pattern, Location) else _matches(str(pattern), split, config):
            found.setdefault(location)
    return list(found)


def size_of(location: Location) -> int:
    """Bytes on disk of a file, or of all files of a source tree."""
    return sum(file.size() for _, file in tree_files(location)) if location.is_tree else location.size()


def _matches(pattern: str, split: str | None, config: str | None) -> list[Location]:
    location = Location.of(pattern)
    if location.is_tree:
        tree_files(location)
        return [location]
    found = _local(location) if location.is_local else _remote(location)
    if found is None:
        found = _folder(location, split, config)
        for file in found:
            if file.is_local:
                _check_readable(file.path)
        return found
    found = [file for file in found if not file.name.startswith(UNFINISHED)]
    if not found:
        raise DataError(
            "no file matches", where=pattern, next_step="check the path; relative ones start at the working folder"
        )
    for file in found:
        kind_of(file)
    return found


def _local(location: Location) -> list[Location] | None:
    """The files of a local path or glob; None for a folder."""
    if location.path.is_dir():
        return None
    if location.path.exists() or not glob.has_magic(location.url):
        paths = [location.path]
    else:
        paths = sorted(Path(p) for p in glob.glob(location.url, recursive=True) if not os.path.isdir(p))
    for path in paths:
        _check_readable(path)
    return [Location(str(path)) for path in paths]


def _check_readable(path: Path) -> None:
    if not path.exists():
        nearby = sorted(p.name for p in path.parent.iterdir())[:5] if path.parent.is_dir() else []
        advice = f"its folder holds {', '.join(nearby)}" if nearby else "its folder does not exist either"
        raise DataError("there is no such file", where=str(path), next_step=advice)
    if not os.access(path, os.R_OK):
        raise DataError("no permission to read the file", where=str(path), next_step=f"chmod +r {path}")


def _remote(location: Location) -> list[Location] | None:
    """The files of a URL or of a glob in one; None for a folder."""
    is_glob = glob.has_magic(location.url) and "::" not in location.url and not location.url.startswith("http")
    if is_glob:
        system, path = location.file_system()
        with location.failures():
            found = system.glob(path, detail=True)
        names = sorted(name for name, info in found.items() if info["type"] != "directory")
        return [
            Location(system.unstrip_protocol(name)) for name in names if not name.rsplit("/", 1)[-1].startswith(".")
        ]
    try:
        info = location.info()
    except FileNotFoundError:
        raise DataError(
            "there is no such file",
            where=str(location),
            next_step="check the address, and your access to it where it is not public",
        ) from None
    return None if info["type"] == "directory" else [location]


def _folder(folder: Location, split: str | None, config: str | None) -> list[Location]:
    walked = walk(folder)
    files = {path: file for path, file in walked if find_kind(path.rsplit("/", 1)[-1]) and not is_never_data(path)}
    kinds = {path: kind_of(file) for path, file in files.items()}
    if any(kind.has_rows for kind in kinds.values()):
        files = {
            path: file
            for path, file in files.items()
            if kinds[path].has_rows or (kinds[path].content != "code" and not is_about_data(path))
        }
    elif any(kind.content == "code" for kind in kinds.values()):
        return [Location(TREE + folder.url)]
    if not files:
        raise DataError("the folder holds no data files", where=str(folder), next_step=known_suffixes())
    if split is None:
        return list(files.values())
    told = card_files(folder, list(files), split, config) if CARD in dict(walked) else None
    if told is None and config is not None:
        raise DataError(
            f"there is no card that lists a configuration '{config}'",
            where=str(folder),
            next_step="name the files that are meant",
        )
    return _named_so(folder, files, split) if told is None else [files[path] for path in told]


def _named_so(folder: Location, files: dict[str, Location], split: str) -> list[Location]:
    """The files whose names say the split, all where none says any."""
    chosen, named = chosen_split(list(files), split)
    if named and chosen is None:
        raise DataError(
            f"its files are for {', '.join(named)}, none is for {split}",
            where=str(folder),
            next_step="name the files, or a glob",
        )
    return [file for path, file in files.items() if chosen is None or split_of(path) == chosen]
