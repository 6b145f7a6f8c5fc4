"""What prepared data depends on, as one short hash: contents of files, settings, tokenizer, and this code's version.

Contents, not names or dates, so a file that moved is not prepared again. A local file is hashed once and the hash
kept under the token cache by path, size and time of change; hashing runs at about 1 GB/s. Of a remote file nothing is
read: its store's own hash stands for it. For a stream, which must not wait until all was read, a local file's size, beginning
and end stand for its content.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cairn.config.home import token_cache
from cairn.data.sources.location import Location
from cairn.data.sources.tree import tree_files

SAMPLED_BYTES = 1 << 20

CODE_VERSION = 3
"""Raised whenever the same input would become other rows."""


def fingerprint(files: Sequence[Location], settings: dict[str, Any], tokenizer: Any, *, whole: bool = True) -> str:
    """16 hex digits over the files in their order, the settings, the tokenizer and the code's version.

    `whole`: every byte of a local file counts, not only its ends.
    """
    parts = {
        "code": CODE_VERSION,
        "files": [content_identity(file) if whole else sampled_identity(file) for file in files],
        "settings": settings,
        "tokenizer": tokenizer_identity(tokenizer),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def tokenizer_identity(tokenizer: Any) -> str:
    """sha256 over everything that decides tokens: model, special tokens, chat template."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())
    for state in ("padding", "truncation"):
        model.pop(state, None)
    parts = [model, tokenizer.chat_template, tokenizer.bos_token_id, tokenizer.eos_token_id]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def content_identity(location: Location) -> str:
    """What changes when the content does.

    Of a local file its sha256; of a remote one the hash that its store keeps (an ETag, a checksum, the hub's sha256),
    else fsspec's `ukey` of it, mostly over name, size and date; of a source tree the paths and contents of its files.
    """
    if location.is_tree:
        parts = [(path, _tree_file_identity(file)) for path, file in tree_files(location)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return file_sha256(location.path) if location.is_local else location.identity()


def sampled_identity(location: Location) -> str:
    """As `content_identity`, but of a local file its size, first and last `SAMPLED_BYTES` alone."""
    if location.is_tree or not location.is_local:
        return content_identity(location)
    size = location.size()
    with location.path.open("rb") as stream:
        digest = hashlib.sha256(stream.read(SAMPLED_BYTES))
        stream.seek(max(0, size - SAMPLED_BYTES))
        digest.update(stream.read(SAMPLED_BYTES))
    return f"{size} {digest.hexdigest()}"


def _tree_file_identity(file: Location) -> str:
    """Uncached: a tree has many small files, and a note of each hash would be another."""
    if not file.is_local:
        return file.identity()
    return hashlib.sha256(file.path.read_bytes()).hexdigest()


def file_sha256(path: Path) -> str:
    """The sha256 of a local file, from the cache where the file has not changed since."""
    path = path.resolve()
    state = path.stat()
    key = hashlib.sha256(str(path).encode()).hexdigest()[:32]
    kept = token_cache() / "hashes" / f"{key}.json"
    seen = [str(path), state.st_size, state.st_mtime_ns]
    if kept.exists():
        *known, digest = json.loads(kept.read_text(encoding="utf-8"))
        if known == seen:
            return str(digest)
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    kept.parent.mkdir(parents=True, exist_ok=True)
    staging = kept.with_name(f".{key}.{os.getpid()}")
    staging.write_text(json.dumps([*seen, digest]), encoding="utf-8")
    staging.replace(kept)
    return digest
