"""What a file is, by its suffixes: how its content is read, and how it is compressed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn.data.sources.location import Location
from cairn.errors import DataError

TREE_KIND = "tree"
ROW_SUFFIXES = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
DOCUMENT_SUFFIXES = {".txt": "text", ".md": "text"}
SOURCE_FILES = (
    ".py .pyi .c .h .cc .cpp .cxx .hpp .cu .cuh .java .kt .scala .go .rs .js .jsx .ts .tsx .mjs .rb .php .pl .swift .m "
    ".mm .cs .fs .vb .hs .ml .mli .lua .r .jl .dart .ex .exs .erl .clj .lisp .el .scm .f90 .asm .s .sh .bash .ps1 .sql "
    ".html .css .scss .vue .tex .rst .proto .zig .nim .v .sv .vhd"
)
CODE_SUFFIXES = dict.fromkeys(SOURCE_FILES.split(), "code")
CONTENTS = {**ROW_SUFFIXES, **DOCUMENT_SUFFIXES, **CODE_SUFFIXES}
COMPRESSIONS = {".zst": "zst", ".gz": "gz", ".xz": "xz"}
COLUMNAR = ("parquet", "arrow")
"""Compressed inside, so not from outside as well."""


@dataclass(frozen=True)
class Kind:
    """`content`: lines, json, csv, tsv, parquet, arrow, text, code or tree; `compression`: zst, gz, xz or nothing."""

    content: str
    compression: str = ""

    @property
    def has_rows(self) -> bool:
        """Whether the file holds rows, rather than being one document."""
        return self.content in ROW_SUFFIXES.values()


def find_kind(name: str) -> Kind | None:
    """The kind of a file of that name, or None."""
    suffixes = [f".{part.lower()}" for part in name.lstrip(".").split(".")[1:]]
    compression = COMPRESSIONS.get(suffixes[-1], "") if suffixes else ""
    if compression:
        suffixes.pop()
    content = CONTENTS.get(suffixes[-1], "") if suffixes else ""
    return None if not content or (compression and content in COLUMNAR) else Kind(content, compression)


def kind_of(place: Location | Path | str) -> Kind:
    """The kind of a file or a source tree; DataError for a suffix that is not known."""
    location = Location.of(place)
    if location.is_tree:
        return Kind(TREE_KIND)
    kind = find_kind(location.name)
    if kind is None:
        raise DataError(f"'{location.name}' has no known suffix", where=str(location), next_step=known_suffixes())
    return kind


def known_suffixes() -> str:
    """Advice for a name that says nothing."""
    text = [suffix for suffix in (*ROW_SUFFIXES, *DOCUMENT_SUFFIXES) if CONTENTS[suffix] not in COLUMNAR]
    return (
        f"use {', '.join(text)}, each also with {' or '.join(COMPRESSIONS)}, or .parquet, .arrow, "
        "a source file, or tree:FOLDER for every text file of a folder"
    )
