"""A source tree to rows: one document a file, in the order of the paths, with the path inside the tree in the row.

Every text file counts, whatever its name; hidden ones, links, `__pycache__` and `node_modules` are passed over. A file with
a zero byte near its start is binary: it is left out, by choice and counted. A file is held in memory as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from cairn.data.drops import DropReason, Rejected
from cairn.data.sources.compression import OnBytes
from cairn.data.sources.location import TREE, Location
from cairn.errors import DataError
from cairn.records import Source

PASSED_OVER = ("__pycache__", "node_modules")
SNIFFED_BYTES = 8192
"""As much as git looks at to tell binary from text."""


def walk(folder: Location, *, with_links: bool = True) -> list[tuple[str, Location]]:
    """Every file below a folder but hidden ones: its path inside and its location, sorted by path.

    Linked files count `with_links`, as in a snapshot of the hub; linked folders never do.
    """
    with folder.failures():
        found = list(_local_paths(folder, with_links=with_links) if folder.is_local else _remote_paths(folder))
    return sorted((path, location) for path, location in found if not _is_hidden(path))


def tree_rows(tree: Location, on_bytes: OnBytes) -> Iterator[tuple[Source, Any]]:
    """Each text file as `{"text", "path"}`; its Source is the file, line 1."""
    read = 0
    for path, location in tree_files(tree):
        with location.failures(), location.open() as stream:
            data = stream.read()
        read += len(data)
        if on_bytes is not None:
            on_bytes(read)
        source = Source(str(location), 1)
        yield source, _document(data, path, source)


def tree_files(tree: Location) -> list[tuple[str, Location]]:
    """The files of a source tree with their paths inside it."""
    files = walk(Location(tree.url.removeprefix(TREE)), with_links=False)
    found = [(path, file) for path, file in files if not set(path.split("/")) & set(PASSED_OVER)]
    if not found:
        raise DataError("the folder holds no files", where=str(tree), next_step="name a folder of source files")
    return found


def _document(data: bytes, path: str, source: Source) -> Any:
    if b"\0" in data[:SNIFFED_BYTES]:
        return Rejected(source, DropReason.BINARY_FILE)
    try:
        return {"text": data.decode("utf-8"), "path": path}
    except UnicodeDecodeError as error:
        return Rejected(source, DropReason.DAMAGED_ROW, f"not UTF-8 at byte {error.start}")


def _local_paths(folder: Location, *, with_links: bool) -> Iterator[tuple[str, Location]]:
    root = folder.path
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = os.path.join(parent, name)
            if with_links if os.path.islink(file) else os.path.isfile(file):
                yield os.path.relpath(file, root).replace(os.sep, "/"), Location(file)


def _remote_paths(folder: Location) -> Iterator[tuple[str, Location]]:
    system, root = folder.file_system()
    base = system.info(root)["name"].rstrip("/") + "/"
    for path in system.find(root):
        inside = path.removeprefix(base)
        yield inside, folder.joined(inside)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
