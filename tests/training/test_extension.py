"""A killed build of DeepSpeed's operator is told, not waited for."""

from __future__ import annotations

import os
import threading
import time

import pytest

from cairn.errors import UserError
from cairn.training.extension import LONGEST_BUILD_S, await_build

pytestmark = pytest.mark.unit


@pytest.fixture
def lock(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    await_build("cpu_adam")
    path = tmp_path / "cpu_adam" / "lock"
    path.touch()
    return path


def test_a_lock_older_than_any_build_is_named(lock):
    long_ago = time.time() - LONGEST_BUILD_S - 60
    os.utime(lock, (long_ago, long_ago))
    with pytest.raises(UserError, match="killed 11 minutes ago") as caught:
        await_build("cpu_adam")
    assert str(lock) in str(caught.value)
    assert lock.exists()


def test_a_build_that_goes_on_is_waited_for(lock):
    timer = threading.Timer(0.2, lock.unlink)
    timer.start()
    await_build("cpu_adam")
    assert not lock.exists()
