"""Adapters loaded by name while the service runs, seen by every replica and kept over a restart.

One small file a name, `<storage>/serving/<base>/<name>.json`, replaced atomically. The content hash is part of it:
a folder that changes after it was loaded is refused, not served under the old name.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import AdapterError
from cairn.serving.refusal import UnknownModelError
from cairn.store.durable import make_directory, replace_file, storage_errors
from cairn.store.names import check_name

HASHED_FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(frozen=True)
class LoadedAdapter:
    """A name and the folder behind it; `sha256` over its configuration and weights."""

    name: str
    path: Path
    sha256: str


class LoadedAdapters:
    """The names of one base."""

    def __init__(self, storage: str | Path, base_name: str) -> None:
        self.folder = Path(storage) / "serving" / base_name

    def names(self) -> list[str]:
        """Loaded names, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(path.stem for path in self.folder.glob("*.json") if not path.name.startswith("."))

    def get(self, name: str) -> LoadedAdapter | None:
        """What is loaded under `name`."""
        path = self.folder / f"{check_name(name)}.json"
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return LoadedAdapter(entry["name"], Path(entry["path"]), entry["sha256"])

    def add(self, adapter: LoadedAdapter) -> None:
        """Make `adapter` known to all replicas."""
        entry = {"name": adapter.name, "path": str(adapter.path), "sha256": adapter.sha256}
        with storage_errors(self.folder):
            make_directory(self.folder)
            replace_file(self.folder / f"{check_name(adapter.name)}.json", json.dumps(entry) + "\n")

    def remove(self, name: str) -> LoadedAdapter:
        """Forget `name`; UnknownModelError when it is not loaded."""
        adapter = self.get(name)
        if adapter is None:
            raise UnknownModelError(f"no adapter '{name}' is loaded", next_step="GET /v1/models lists what is")
        with storage_errors(self.folder):
            (self.folder / f"{name}.json").unlink(missing_ok=True)
        return adapter


def content_sha256(folder: Path) -> str:
    """Over the adapter's configuration and weights; AdapterError when one is missing."""
    digest = hashlib.sha256()
    for name in HASHED_FILES:
        try:
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise AdapterError(
                f"no readable {name} ({error.strerror})",
                where=str(folder),
                next_step="give a PEFT directory with safetensors",
            ) from None
    return digest.hexdigest()
