"""Where data lies: a local path, a URL of any fsspec file system, or a source tree (`tree:` before either).

A local path stays the string that it was; everything else is a URL (`s3://`, `gs://`, `hf://datasets/…`,
`memory://`). What goes wrong in somebody else's file system becomes a DataError that names the URL, and a missing
package a UserError that names it. Importing this costs fsspec alone; the package of a file system is loaded on use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from fsspec.core import url_to_fs

from cairn.errors import CairnError, DataError, UserError

TREE = "tree:"
"""Before a folder: each text file in it is a document."""

PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
"""The pip package of a file system that Cairn does not bring along."""

CONTENT_KEYS = ("ETag", "etag", "md5Hash", "blob_id")
"""What file systems call the hash of a file's content: S3 and HTTP, Google, the Hugging Face hub."""

_URL = re.compile(r"[a-z][a-z0-9+.-]*(?:://|::)")


@dataclass(frozen=True)
class Location:
    """One file, or one source tree; `str()` gives back what makes the same Location."""

    url: str

    @classmethod
    def of(cls, place: str | Path | Location) -> Location:
        """From what a person wrote: `~` is expanded, `file://` and `./` go away."""
        if isinstance(place, Location):
            return place
        text = str(place)
        if text.startswith(TREE):
            return cls(TREE + cls.of(text.removeprefix(TREE)).url)
        text = text.removeprefix("file://")
        return cls(text) if _URL.match(text) else cls(str(Path(os.path.expanduser(text))))

    def __str__(self) -> str:
        return self.url

    @property
    def is_tree(self) -> bool:
        """Whether this is a source tree rather than a file."""
        return self.url.startswith(TREE)

    @property
    def is_local(self) -> bool:
        """Whether it lies in this machine's own file system."""
        return not _URL.match(self.url.removeprefix(TREE))

    @property
    def path(self) -> Path:
        """The local path."""
        assert self.is_local, self.url
        return Path(self.url.removeprefix(TREE))

    @property
    def name(self) -> str:
        """The last part of the path; of a web address without its query."""
        text = self.url.split("::")[0].removeprefix(TREE)
        return PurePosixPath(text.split("?")[0] if text.startswith("http") else text).name

    def holds(self, file: str) -> bool:
        """Whether this is that file, or a source tree with it."""
        return file == self.url or (self.is_tree and file.startswith(self.url.removeprefix(TREE).rstrip("/") + "/"))

    def joined(self, inside: str) -> Location:
        """The file at a path within this folder; of a chain (`zip://…::s3://…`) within its first part."""
        head, chain, rest = self.url.partition("::")
        slash = "" if head.endswith("://") else "/"
        return Location((head if not slash else head.rstrip("/")) + slash + inside + chain + rest)

    def absolute(self) -> Location:
        """The same wherever the working folder is."""
        prefix = TREE if self.is_tree else ""
        return Location(prefix + str(self.path.absolute())) if self.is_local else self

    def file_system(self) -> tuple[Any, str]:
        """fsspec's file system and the path in it. UserError for a missing package or an unknown kind."""
        url = self.url.removeprefix(TREE)
        protocol = re.split("://|::", url, maxsplit=1)[0]
        try:
            return _file_system(url)
        except ImportError as error:
            package = PACKAGES.get(protocol) or error.name or protocol
            raise UserError(
                f"reading {protocol}:// needs a package that is not installed ({error})",
                where=self.url,
                next_step=f"pip install {package}",
            ) from None
        except ValueError as error:
            raise UserError(
                f"this is no address of a known file system ({error})",
                where=self.url,
                next_step="use a local path, or a URL such as s3://, gs://, hf://datasets/ or https://",
            ) from None

    def open(self) -> BinaryIO:
        """The file's bytes, seekable."""
        if self.is_local:
            return self.path.open("rb")
        system, path = self.file_system()
        with self.failures():
            return system.open(path, "rb")

    def size(self) -> int:
        """Bytes on disk."""
        if self.is_local:
            return self.path.stat().st_size
        return int(self.info().get("size") or 0)

    def info(self) -> dict[str, Any]:
        """What a remote file system says of the file; FileNotFoundError for none."""
        system, path = self.file_system()
        with self.failures(FileNotFoundError):
            return dict(system.info(path))

    def identity(self) -> str:
        """What changes when a remote file's content does: the store's own hash of it, else fsspec's `ukey`.

        A `ukey` covers what the file system knows, mostly name, size and date; over plain HTTP without an ETag the
        address alone.
        """
        info = self.info()
        system, path = self.file_system()
        with self.failures():
            if not any(info.get(key) for key in CONTENT_KEYS):  # the hub tells hashes in listings alone
                listed = system.ls(system._parent(path), detail=True)
                info |= next((entry for entry in listed if entry["name"] == info["name"]), {})
            content = next((f"{key}:{info[key]}" for key in CONTENT_KEYS if info.get(key)), None)
            return f"{content} {info['size']}" if content else f"ukey:{system.ukey(path)}"

    @contextmanager
    def failures(self, *passed: type[Exception]) -> Iterator[None]:
        """Turns what a file system raises within into a DataError; of a remote one that can be anything."""
        try:
            yield
        except Exception as error:
            if isinstance(error, (CairnError, *passed)) or (self.is_local and not isinstance(error, OSError)):
                raise
            said = str(error) or type(error).__name__
            if self.is_local:
                what, step = f"the file cannot be read ({said})", "check the path and its permissions"
            else:
                what, step = f"it cannot be read ({said})", "check the address, your access to it and the network"
            raise DataError(what, where=self.url, next_step=step) from None


@lru_cache(maxsize=256)
def _file_system(url: str) -> tuple[Any, str]:
    """Kept, for a file system in an archive closes its files with itself."""
    found: tuple[Any, str] = url_to_fs(url)
    return found
