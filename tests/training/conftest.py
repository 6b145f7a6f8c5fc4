"""One gloo process group of one worker for the tests of this folder that run in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairn.training.local import process_group


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A world of one."""
    with process_group(tmp_path_factory.mktemp("group") / "init"):
        yield
