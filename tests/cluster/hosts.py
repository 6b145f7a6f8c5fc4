"""Hosts made of network namespaces: each its own address, Ray folder and shared memory, joined by one bridge."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

NETWORK = "10.231.77"
BRIDGE = "cairnbr0"
RAY_FOLDER = Path("/tmp/ray")


def reason_not_to() -> str | None:
    """Why namespaces cannot be made here, or None."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return "needs root, ip and unshare"
    tried = subprocess.run(["ip", "netns", "add", "cairnprobe"], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", "cairnprobe"], capture_output=True, check=False)
    return f"namespaces cannot be made: {tried.stderr.strip()}" if tried.returncode else None


class Host:
    """One namespace. `address` is the only one it has but the loopback."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"cairnhost{number}"
        self.address = f"{NETWORK}.{number}"
        self.folder = folder / self.name
        (self.folder / "ray").mkdir(parents=True)

    def start(self, script: str, **variables: str) -> subprocess.Popen[str]:
        """A shell script on this host; kill it and everything it started ends."""
        own = f"mount --bind {self.folder}/ray {RAY_FOLDER} && mount -t tmpfs tmpfs /dev/shm && {script}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
             "bash", "-euc", own],
            env={**kept, "PATH": path, "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """That many hosts on one bridge; gone with the block."""
    folder = Path(tempfile.mkdtemp(prefix="hosts", dir="/tmp"))
    RAY_FOLDER.mkdir(exist_ok=True)
    made = [Host(number, folder) for number in range(1, count + 1)]
    _remove(made)
    try:
        _run("link", "add", BRIDGE, "type", "bridge")
        _run("link", "set", BRIDGE, "up")
        for number, host in enumerate(made, start=1):
            outer, inner = f"cairnout{number}", f"cairnin{number}"
            _run("netns", "add", host.name)
            _run("link", "add", outer, "type", "veth", "peer", "name", inner)
            _run("link", "set", inner, "netns", host.name)
            _run("link", "set", outer, "master", BRIDGE, "up")
            _run("-n", host.name, "addr", "add", f"{host.address}/24", "dev", inner)
            _run("-n", host.name, "link", "set", inner, "up")
            _run("-n", host.name, "link", "set", "lo", "up")
        yield made
    finally:
        _remove(made)
        shutil.rmtree(folder, ignore_errors=True)


def _run(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _remove(made: list[Host]) -> None:
    for host in made:
        subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)
