"""Whether the files of a saved adapter, of whatever method, are sound and fit a base model; nothing of them is executed.

Names and shapes are compared with the base's architecture. Cost: reading the files; a method that looks at the base's
numbers (AdaMSS, FRoD, SHiRA) needs the base itself, which is loaded then.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.adapters.files import LoraWeights, read_lora
from cairn.adapters.peft_config import SCORES, says_lora
from cairn.adapters.reading import Saved, attach_other, read_other
from cairn.errors import AdapterError
from cairn.models.load import load_config, load_model
from cairn.models.skeleton import skeleton


@dataclass(frozen=True)
class Sound:
    """What lies in a folder. `rank`: the largest, None of a method without; `modules`: the layers that it names."""

    method: str
    rank: int | None
    modules: tuple[str, ...]
    config: Mapping[str, Any]

    def __str__(self) -> str:
        rank = f", rank {self.rank}" if self.rank is not None else ""
        return f"{len(self.modules)} modules{rank}" if self.modules else self.method


def read_sound(folder: Path) -> Sound:
    """The adapter in a PEFT directory by itself; AdapterError with all reasons where its files are not sound."""
    return _described(read_lora(folder, scores=None) if says_lora(folder) else read_other(folder))


def read_fitting(folder: Path, base: str) -> Sound:
    """The same of one that fits `base` (a folder, hub name or GGUF file); AdapterError or ModelError where it does not."""
    if says_lora(folder):
        return _described(read_lora(folder, load_config(base), scores=None))
    saved = read_other(folder)
    head: Any = "score" if saved.config.get("task_type") == SCORES else "language"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*meta parameter.*no-op")
            attach_other(skeleton(load_config(base), head=head), saved)
    except AdapterError as error:
        if not isinstance(error.__cause__, NotImplementedError):
            raise
        attach_other(load_model(base, precision="fp32", head=head), saved)
    return _described(saved)


def last_names(paths: Iterable[str]) -> tuple[str, ...]:
    """Modules as a card lists them (`q_proj`)."""
    return tuple(sorted({path.rpartition(".")[2] for path in paths}))


def _described(found: LoraWeights | Saved) -> Sound:
    if isinstance(found, LoraWeights):
        return Sound("lora", found.rank, tuple(found.layers), found.config)
    return Sound(found.method.name, getattr(found.method.config, "rank", None), tuple(found.names), found.config)
