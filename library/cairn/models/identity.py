"""Which base model, which tokenizer: hashes that an adapter's card carries and that loading compares.

The hash of a model covers its weights, not its paths or its README. It reads every byte once, so it is kept under the
data home by path, size and time of change. Cost: about a second a gigabyte, once.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from cairn.config import home
from cairn.errors import ModelError
from cairn.models.locate import locate

BLOCK_BYTES = 1 << 22


def base_sha256(path: str | Path, revision: str | None = None) -> str:
    """64 hex digits over the weight files of the model at `path`: safetensors in order of name, or the GGUF file.

    Raises ModelError where there are none.
    """
    found = locate(path, revision=revision)
    files = [found] if found.is_file() else sorted(found.glob("*.safetensors"))
    if not files:
        raise ModelError("the directory has no safetensors", where=str(path), next_step="give a base model's directory")
    digests = [f"{file.name} {_file_sha256(file)}" for file in files]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def tokenizer_sha256(tokenizer: Any, *, template: bool = True) -> str:
    """64 hex digits over what a tokenizer does: vocabulary, merges and rules, special tokens, chat template.

    Without `template`: as if it had none, which is the base model's where the template was chosen by name.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab()
    if backend is not None:
        rules = {**rules, "truncation": None, "padding": None}
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if name != "pad_token"}
    content = {"rules": rules, "special": special, "template": tokenizer.chat_template if template else None}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _file_sha256(file: Path) -> str:
    stat = file.stat()
    state = f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    kept = home.home() / "hashes" / hashlib.sha256(state.encode()).hexdigest()[:20]
    if kept.is_file():
        return kept.read_text(encoding="ascii")
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
    kept.parent.mkdir(parents=True, exist_ok=True)
    draft = kept.with_suffix(f".{os.getpid()}")
    draft.write_text(digest.hexdigest(), encoding="ascii")
    draft.replace(kept)
    return digest.hexdigest()
