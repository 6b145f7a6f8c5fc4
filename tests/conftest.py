"""Fixtures shared by all tests: an isolated data home, a tiny model, one Ray cluster."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's tests are the longer of the two lanes
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")  # bitsandbytes would load torch's compiler, two seconds a process

from tests.tiny import save_tiny

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cairn-tests"
"""What is slow to make and never changes: the real model, the sample corpus."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for the whole suite, none beside this one where files are named."""
    return 2 if config.args == config.getini("testpaths") else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts Ray takes turns in one process, from the beginning on, for it is the longer part; everything else goes
    file by file. Before xdist, which reads the marks once."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group("ray" if starts_ray(item) else item.location[0]))
    items.sort(key=starts_ray, reverse=True)


def starts_ray(item: pytest.Item) -> bool:
    """Whether the test is marked so."""
    return any(item.get_closest_marker(name) for name in ("ray", "cluster"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Unit tests do not wait for the imports of files that have none."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if config.option.markexpr == "unit" and is_test and "mark.unit" not in collection_path.read_text():
        return True
    return None


@pytest.fixture(scope="session", autouse=True)
def cairn_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data home of this test session's own."""
    before = os.environ.get("CAIRN_HOME")
    folder = tmp_path_factory.mktemp("home")
    os.environ["CAIRN_HOME"] = str(folder)
    # A build of DeepSpeed's that was killed leaves a lock on which every later one would wait.
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(folder / "extensions"))
    yield folder
    if before is None:
        del os.environ["CAIRN_HOME"]
    else:
        os.environ["CAIRN_HOME"] = before


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny random model with tokenizer and chat template; read only."""
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as `cairn sample` makes it; kept between test runs, read only."""
    from cairn.models.sample import fetch_smollm2

    with _cache_lock():
        return fetch_smollm2(CACHE / "models")


@pytest.fixture(scope="session")
def sample_path() -> Path:
    """The sample corpus as `cairn sample` makes it; kept between test runs for one Python and one version of its code."""
    from cairn.data.sample import build_corpus

    folder = Path(build_corpus.__code__.co_filename).parent
    sources = [*sorted(folder.glob("sample*")), folder / "stdlib_text.py"]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources if path.is_file())).hexdigest()[:12]
    folder = CACHE / f"sample-{platform.python_version()}-{code}"
    with _cache_lock():
        if not folder.exists():
            scratch = Path(tempfile.mkdtemp(prefix="sample", dir=CACHE))
            build_corpus(scratch)
            scratch.rename(folder)
    return folder


@contextmanager
def _cache_lock() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def ray_cluster(cairn_home: Path) -> Iterator[None]:
    """One local Ray cluster of 4 CPUs for the whole test session."""
    import ray

    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=150_000_000,
        _temp_dir=str(folder),
        log_to_driver=False,
        runtime_env={"env_vars": {"CAIRN_HOME": str(cairn_home), "OMP_NUM_THREADS": "1"}},
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A gloo process group of one, for runs in this process; one for all, since DeepSpeed does not find its way into another."""
    from cairn.training.local import process_group

    with process_group(tmp_path_factory.mktemp("group") / "init"):
        yield
