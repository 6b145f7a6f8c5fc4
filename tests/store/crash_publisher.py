"""Run as a script: publish, promote or delete, and die by SIGKILL before the k-th system call of it, for every k.

A profile hook sees every call from Python into `posix` and `io`, so no step of the implementation is left out, whatever
functions it uses. Each k is a fork; the parent then checks the store. Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from cairn.store.card import Base, Facts
from cairn.store.store import Store

FACTS = Facts(base=Base(path="base"), method="lora", libraries={})
MODULES = ("posix", "_io", "io")
ACTIONS: dict[str, Callable[[Store, Path], Any]] = {
    "publish": lambda store, source: store.publish("n", source, FACTS),
    "promote": lambda store, source: store.promote("n", 2, "prod"),
    "delete": lambda store, source: store.delete("n@2"),
}
AFTERWARDS = {"publish": 2, "delete": 1}
"""Versions there are when it has happened."""


def kill_before(step: int) -> None:
    """Die before the `step`-th call (from 0) that can touch the file system."""
    seen = -1

    def watch(frame: FrameType, event: str, function: Any) -> None:
        nonlocal seen
        owner = type(getattr(function, "__self__", None)).__module__
        if event == "c_call" and (getattr(function, "__module__", None) in MODULES or owner in MODULES):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


def attempt(root: Path, source: Path, action: str, step: int) -> int:
    """One forked try; its wait status."""
    child = os.fork()
    if child == 0:
        store = Store(root)
        kill_before(step)
        ACTIONS[action](store, source)
        sys.setprofile(None)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def sweep(base: Path, source: Path, action: str) -> dict[str, int]:
    """Every k until the action finishes; how many left it absent and how many whole."""
    counts = {"absent": 0, "whole": 0}
    for step in range(10_000):
        root = base / f"{action}{step}"
        store = Store(root)
        store.publish("n", source, FACTS)
        if action != "publish":
            store.publish("n", source, FACTS)
            store.promote("n", 1, "prod")
        status = attempt(root, source, action, step)
        versions = store.versions("n")
        done = store.aliases("n")["prod"] == 2 if action == "promote" else len(versions) == AFTERWARDS[action]
        for adapter in versions:
            for name in adapter.card.files:
                assert (adapter.path / name).read_bytes() == (source / name).read_bytes(), (step, name)
        assert len(versions) in ((2,) if action == "promote" else (1, 2)), step
        following = 3 if action == "delete" else len(versions) + 1
        assert store.publish("n", source, FACTS).card.version == following, step
        shutil.rmtree(root)
        if os.WIFEXITED(status):
            assert done
            return counts
        assert os.WTERMSIG(status) == signal.SIGKILL
        counts["whole" if done else "absent"] += 1
    raise AssertionError("the action never finished")


if __name__ == "__main__":
    here = Path(sys.argv[1])
    made = here / "source"
    (made / "sub").mkdir(parents=True)
    (made / "adapter_model.safetensors").write_bytes(os.urandom(100_000))
    (made / "sub" / "tokenizer.json").write_text("{}")
    print(json.dumps({action: sweep(here, made, action) for action in ACTIONS}))
