"""Adapters that others made, of any method, taken into the store: a PEFT directory, or the name of one on the hub.

Only the adapter's two files and those of its tokenizer are taken. The base comes from the one who imports, or is the
folder that the config names: a name in a config that came from anywhere makes nothing be downloaded. The shapes are
compared with the base's before anything is published. Cost: reading both once.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from cairn.adapters.files import CONFIG_FILE, TEMPLATE_FILE, WEIGHTS_FILE
from cairn.errors import AdapterError
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import TOKENIZER_FILES, load_tokenizer
from cairn.models.locate import HUB_NAME, from_hub
from cairn.store.card import Facts
from cairn.store.fitting import Sound, last_names, read_fitting, read_sound
from cairn.store.store import Adapter, Store

TAKEN = (
    CONFIG_FILE,
    WEIGHTS_FILE,
    TEMPLATE_FILE,
    *TOKENIZER_FILES,
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)


def import_adapter(
    store: Store, source: str, name: str, *, base: str | None = None, revision: str | None = None
) -> Adapter:
    """Publish the adapter in the folder, or of the hub name, `source` as the next version of `name`.

    `base`: a model directory, hub name or GGUF file; None for the folder that the adapter's config names.
    Raises AdapterError or ModelError with the reason; then nothing was published.
    """
    folder = Path(source).expanduser()
    with tempfile.TemporaryDirectory() as place:
        draft = Path(place) / "adapter"
        if folder.is_dir():
            found = read_sound(folder)  # refuses links that lead out of the folder
            _take(folder, draft)
        else:
            _take(_fetched(source, revision), draft)
            found = read_sound(draft)
        base = base or _named_base(found, source)
        return store.publish(name, draft, _facts(read_fitting(draft, base), draft, base, source, revision))


def _take(folder: Path, draft: Path) -> None:
    draft.mkdir()
    for name in TAKEN:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, draft / name)


def _fetched(source: str, revision: str | None) -> Path:
    if not HUB_NAME.fullmatch(source):
        raise AdapterError(
            "there is no such folder", where=source, next_step="give a PEFT directory, or a hub name as in USER/ADAPTER"
        )
    return from_hub(source, revision, list(TAKEN), otherwise="download it elsewhere and give its folder")


def _named_base(found: Sound, source: str) -> str:
    named = found.config.get("base_model_name_or_path")
    if not isinstance(named, str) or not named or not Path(named).is_dir():
        raise AdapterError(
            f"its config names the base {str(named)[:120]!r}, which is no folder here",
            where=source,
            next_step="give the base with --base, a folder or a hub name",
        )
    return named


def _facts(sound: Sound, draft: Path, base: str, source: str, revision: str | None) -> Facts:
    own = any((draft / name).is_file() for name in TOKENIZER_FILES)
    found = Path(base).expanduser()
    known = {
        "base": {"path": str(found.resolve()) if found.exists() else base, "sha256": base_sha256(base)},
        "method": sound.method,
        "rank": sound.rank,
        "targets": last_names(sound.modules),
        "tokenizer_sha256": tokenizer_sha256(load_tokenizer(draft if own else base)),
        "operation": f"add {source}" + (f" at {revision}" if revision else ""),
    }
    return Facts.parse(known)
