"""A model directory on disk, readable by whoever may read its folder.

safetensors writes through a private temporary file and leaves it readable by the owner alone, which on storage shared
by a group hides the weights from everybody else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def save_model(model: Any, folder: str | Path) -> None:
    """Config, generation config and safetensors of `model` in `folder`; the tokenizer is the caller's to add."""
    model.save_pretrained(str(folder))
    share_weights(folder)


def share_weights(folder: str | Path) -> None:
    """Give the safetensors in `folder` the mode that the umask gives any other new file."""
    umask = os.umask(0)
    os.umask(umask)
    for file in Path(folder).glob("*.safetensors"):
        file.chmod(0o666 & ~umask)
