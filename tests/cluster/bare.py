"""An interpreter with the pinned dependencies and without Cairn, and a Ray head started from it.

A new virtual environment sees the installed packages by a path line of its own. A folder named there is searched,
but the `.pth` files inside it are not read, so the editable Cairn stays out: as on a cluster that never had it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 90.0


def build_interpreter(folder: Path) -> Path:
    """`bin/python` of a virtual environment in which `import cairn` fails and everything else works."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(packages, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def environment(python: Path, **variables: str) -> dict[str, str]:
    """This process's environment with that interpreter first and nothing of Cairn's or Ray's in it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RAY_", "CAIRN_", "PYTHON", "VIRTUAL"))
    }
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1", **variables}


@dataclass(frozen=True)
class Head:
    """A running head: the address for drivers, the one for jobs, and the environment its commands need."""

    address: str
    jobs_address: str
    python: Path
    environment: dict[str, str]

    def ray(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """`ray …` with the bare interpreter."""
        command = [str(self.python), "-m", "ray.scripts.scripts", *arguments]
        return subprocess.run(
            command, cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )


@contextlib.contextmanager
def ray_head(python: Path, *, num_cpus: int, **variables: str) -> Iterator[Head]:
    """`ray start --head` with a job server, on free ports; ended with the block."""
    folder = Path(tempfile.mkdtemp(prefix="head", dir="/tmp"))
    ports = free_ports(6)
    flags = ("port", "dashboard-port", "dashboard-agent-listen-port", "dashboard-agent-grpc-port",
             "metrics-export-port", "ray-client-server-port")  # fmt: skip
    command = [str(python), "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--num-cpus={num_cpus}",
               f"--temp-dir={folder}", "--object-store-memory=150000000", "--disable-usage-stats",
               *(f"--{flag}={port}" for flag, port in zip(flags, ports, strict=True))]  # fmt: skip
    settings = environment(python, **variables)
    with (folder / "start.log").open("w") as log:
        process = subprocess.Popen(command, env=settings, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    head = Head(f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}", python, settings)
    try:
        _wait_for_jobs(head.jobs_address, process, folder / "start.log")
        yield head
    finally:
        _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the head with everything it started; a polite stop takes half a minute."""
    import psutil

    for child in [*psutil.Process(process.pid).children(recursive=True), process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait(timeout=30)


def _wait_for_jobs(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/api/jobs/", timeout=5):
            return
        time.sleep(0.5)
    raise AssertionError(f"the head did not start: {log.read_text()}")


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
