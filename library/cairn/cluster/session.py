"""One way to Ray for every command and job: `with connected():`.

`RAY_ADDRESS` names a cluster (Ray sets it inside a job); without it a private cluster starts on this machine and ends
with the block. Its token is made for it alone, so nothing is written to `~/.ray` and no other user can reach it.

A cluster need not have Cairn installed: the package that runs here is shipped to the workers as a Ray `py_module`
(about 200 kB, stored once per content). Starting a private cluster takes about 4 s, attaching about 1 s.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cairn.errors import UserError

JOB_CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where the job supervisor hands the job's runtime environment to the driver."""

SHIPPED_VARIABLES = ("CAIRN_HOME", "HF_HOME", "HF_HUB_OFFLINE", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S")
"""What of this process's environment the workers of another cluster see. All of it would break Ray (PATH, RAY_*)."""

RAY_DEFAULTS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_LOG_LEVEL": "ERROR",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Set unless the user set them: paths stay what they were, nothing is reported home, no GPU is hidden, no plan is printed,
Serve's proxy may take a minute to start on a busy machine (by default Serve kills it after three times five seconds,
and whoever waits for it gets ActorDiedError), and a thread of torch that waits for another sleeps: spinning takes the core
from those who work (SmolLM2 scored 2.6 times faster on two busy cores)."""

LISTENER_TIMEOUT_S = 5.0
OBJECT_STORE_SHARE = 0.1
OBJECT_STORE_LIMITS_BYTES = (200_000_000, 8_000_000_000)


@contextmanager
def connected(num_cpus: float | None = None) -> Iterator[None]:
    """Ray is ready inside the block: the caller's own connection, else `RAY_ADDRESS`, else a private cluster.

    `num_cpus` are the CPUs a private cluster must at least count (a laptop may run more workers than it has cores);
    another cluster's size is what it is. Raises UserError when nothing answers at `RAY_ADDRESS`.
    """
    for name, value in RAY_DEFAULTS.items():
        os.environ.setdefault(name, value)
    address = os.environ.get("RAY_ADDRESS", "")
    private = address in ("", "local")
    if private:
        _choose_authentication()
    import ray

    if ray.is_initialized():
        yield
    elif private:
        with _private_cluster(num_cpus):
            yield
    else:
        _attach(address)
        try:
            yield
        finally:
            ray.shutdown()


def package_folder() -> Path:
    """The folder `cairn` that this process imported."""
    import cairn

    return Path(cairn.__path__[0]).resolve()


def _choose_authentication() -> None:
    """A token of this process's own, before Ray reads the environment; an explicit RAY_AUTH_MODE is respected."""
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


@contextmanager
def _private_cluster(num_cpus: float | None) -> Iterator[None]:
    import ray

    # Socket paths hold at most 107 characters, so the folder lies at the top, not under a long TMPDIR.
    folder = Path(tempfile.mkdtemp(prefix="cairn-ray-", dir="/tmp"))
    keep = False
    try:
        ray.init(
            address="local",
            num_cpus=max(os.cpu_count() or 1, int(-(-(num_cpus or 0) // 1))),
            include_dashboard=False,
            object_store_memory=_object_store_bytes(),
            log_to_driver=False,
            logging_level=logging.WARNING,
            _temp_dir=str(folder),
        )
        yield
    except Exception as error:
        keep = not isinstance(error, UserError)
        if keep:
            error.add_note(f"Ray's logs are kept in {folder}")
        raise
    finally:
        ray.shutdown()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _object_store_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    least, most = OBJECT_STORE_LIMITS_BYTES
    return int(min(max(memory * OBJECT_STORE_SHARE, least), most))


def _attach(address: str) -> None:
    import ray

    if "://" in address:
        raise UserError(
            f"RAY_ADDRESS={address} is not an address a driver can attach to",
            next_step="use host:6379 or auto on a node of the cluster; from elsewhere: cairn submit … --address http://…",
        )
    try:
        _require_listener(address)
        ray.init(
            address=address,
            runtime_env=_runtime_environment(os.environ.get(JOB_CONFIG_VARIABLE)),
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except (OSError, ValueError) as error:
        raise UserError(
            f"no Ray cluster can be reached ({str(error).splitlines()[0]})",
            where=f"RAY_ADDRESS={address}",
            next_step="start one with `ray start --head`, or unset RAY_ADDRESS for a private cluster",
        ) from error


def _require_listener(address: str) -> None:
    """OSError when nothing listens: Ray itself would wait a minute and then end the process."""
    host, separator, port = address.rpartition(":")
    if separator:
        socket.create_connection((host, int(port)), timeout=LISTENER_TIMEOUT_S).close()


def _runtime_environment(job_config: str | None) -> dict[str, Any]:
    """What is added to the job's own runtime environment; Ray refuses a key that stands in both."""
    given = json.loads(job_config).get("runtime_env", {}) if job_config else {}
    taken = given.get("env_vars", {})
    variables = {name: os.environ[name] for name in (*SHIPPED_VARIABLES, *RAY_DEFAULTS) if name in os.environ}
    added: dict[str, Any] = {"env_vars": {name: value for name, value in variables.items() if name not in taken}}
    if "py_modules" not in given:
        added["py_modules"] = [str(package_folder())]
    return added
