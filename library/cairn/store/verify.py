"""Whether a published version still is what its card says, and fits the base that it was made for.

Everything is checked, and told, even when the first check fails. Nothing of the adapter is executed. Cost: the bytes
of the version are read twice, those of the base once, unless its hash is known from before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn.adapters.peft_config import CONFIG_FILE, read_config, says_lora
from cairn.adapters.reading import read_other
from cairn.errors import AdapterError, CairnError, ModelError
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import TOKENIZER_FILES, load_tokenizer
from cairn.store.card import CARD_FILE, Card
from cairn.store.durable import list_files
from cairn.store.fitting import read_fitting
from cairn.store.store import Adapter

LORA = "lora"
FLOATS = ("F32", "F16", "BF16")
WHOLE = ("I32", "I64", "U8")
"""What methods that choose places keep beside their weights."""


@dataclass(frozen=True)
class Check:
    """One question. `ok` is None where it does not arise; `reason` says why not, or what was found."""

    name: str
    ok: bool | None
    reason: str = ""


def verify(adapter: Adapter) -> list[Check]:
    """Every check of a version that `Store.resolve` found, which is to say that its card is readable and its own."""
    questions: tuple[tuple[str, Callable[[Path, Card], str | None]], ...] = (
        ("files", _files),
        ("sha256", _hashes),
        ("config", _config),
        ("dtype", _dtype),
        ("finite", _finite),
        ("base", _base),
        ("shapes", _shapes),
        ("tokenizer", _tokenizer),
    )
    return [
        Check("card", True, f"{adapter.reference}, {adapter.card.method}, made {adapter.card.created[:19]}"),
        *(_answered(name, question, adapter) for name, question in questions),
    ]


class _NotAskedError(Exception):
    """The question does not arise."""


def _answered(name: str, question: Callable[[Path, Card], str | None], adapter: Adapter) -> Check:
    try:
        return Check(name, True, question(adapter.path, adapter.card) or "")
    except _NotAskedError as why:
        return Check(name, None, str(why))
    except CairnError as error:
        return Check(name, False, error.what)


def _require(problems: list[str]) -> None:
    if problems:
        raise AdapterError("; ".join(problems))


def _files(folder: Path, card: Card) -> str:
    found = {name for name in list_files(folder) if name != CARD_FILE}
    missing, extra = sorted(set(card.files) - found), sorted(found - set(card.files))
    _require([f"{name} is missing" for name in missing] + [f"{name} is not on the card" for name in extra])
    return f"{len(found)} files"


def _hashes(folder: Path, card: Card) -> None:
    changed = []
    for name, expected in sorted(card.files.items()):
        if (path := folder / name).is_file():
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != expected:
                changed.append(f"{name} has sha256 {found[:12]}…, the card says {expected[:12]}…")
    _require(changed)


def _config(folder: Path, card: Card) -> str:
    _require_adapter(card)
    if not says_lora(folder):
        return read_other(folder).method.name
    problems: list[str] = []
    read_config(folder, problems)
    _require(problems)
    return LORA


def _dtype(folder: Path, card: Card) -> str:
    dtypes: dict[str, int] = {}
    for _, dtype, _ in _tensors(folder):
        dtypes[dtype] = dtypes.get(dtype, 0) + 1
    allowed = FLOATS if card.method == LORA else FLOATS + WHOLE
    _require([f"{count} tensors are {dtype}" for dtype, count in dtypes.items() if dtype not in allowed])
    return ", ".join(f"{count} tensors of {dtype}" for dtype, count in dtypes.items())


def _finite(folder: Path, card: Card) -> None:
    _require([f"{key} holds NaN or infinity" for key, dtype, finite in _tensors(folder) if not finite])


def _tensors(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Name, dtype and whether all numbers are finite, of every tensor of the version."""
    import torch
    from safetensors import SafetensorError, safe_open

    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise AdapterError("there are no safetensors")
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for key in sorted(file.keys()):
                    tensor = file.get_tensor(key)
                    finite = not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
                    yield key, file.get_slice(key).get_dtype(), finite
        except (SafetensorError, OSError, ValueError) as error:
            raise AdapterError(f"{path.name} cannot be read: {error}") from error


def _base(folder: Path, card: Card) -> str:
    if not card.base.sha256:
        raise _NotAskedError("the card holds no hash of the base")
    found = base_sha256(card.base.path)
    if found != card.base.sha256:
        raise ModelError(f"{card.base.path} has sha256 {found[:12]}…, the card says {card.base.sha256[:12]}…")
    return card.base.path


def _shapes(folder: Path, card: Card) -> str:
    _require_adapter(card)
    return str(read_fitting(folder, card.base.path))


def _require_adapter(card: Card) -> None:
    if CONFIG_FILE not in card.files:
        raise _NotAskedError(f"the method is {card.method}")


def _tokenizer(folder: Path, card: Card) -> str:
    """The one that was published with it, else the base's; a chat template chosen by name is not in the hash."""
    if not card.tokenizer_sha256:
        raise _NotAskedError("the card holds no hash of the tokenizer")
    published = any(name in card.files for name in TOKENIZER_FILES)
    place = str(folder) if published else card.base.path
    tokenizer = load_tokenizer(place)
    if card.tokenizer_sha256 not in (tokenizer_sha256(tokenizer), tokenizer_sha256(tokenizer, template=False)):
        raise AdapterError(f"that of {place} has sha256 {tokenizer_sha256(tokenizer)[:12]}…, the card says another")
    return "published with it" if published else "the base's"
