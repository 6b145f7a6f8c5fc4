"""A verb as a Ray job: checked here, measured, uploaded, followed.

The recipe is checked and the upload measured before a byte is sent: Ray's own refusal names neither size nor cause.
The folder is uploaded as the job's working directory (`.gitignore` and `.rayignore` hold), and the package `cairn`
that runs here goes along as a `py_module`, so a cluster needs the pinned dependencies and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.cluster.session import package_folder
from cairn.config.pipeline import load_steps
from cairn.config.recipe import Recipe
from cairn.errors import CairnError, UserError, did_you_mean

VERBS = ("prepare", "train", "search")
LARGEST_SHOWN = 10
ALWAYS_EXCLUDED = (".git", ".venv", "venv", "__pycache__")


@dataclass(frozen=True)
class Submission:
    """What is to run where. `folder` is uploaded; `recipe` lies in it; `limit_bytes` bounds the upload, unpacked."""

    verb: str
    recipe: Path
    overrides: tuple[str, ...]
    folder: Path
    address: str
    limit_bytes: int
    variables: tuple[str, ...] = ()
    entrypoint_cpus: float | None = None


@dataclass(frozen=True)
class Upload:
    """The files Ray would pack, largest first, as (path, bytes)."""

    files: tuple[tuple[Path, int], ...]

    @property
    def total_bytes(self) -> int:
        """Unpacked size."""
        return sum(size for _, size in self.files)


def submit(submission: Submission) -> str:
    """Check, measure, upload and start; returns the submission id.

    Raises UserError for a bad verb, recipe, folder or address, and for an upload above the limit.
    """
    if submission.verb not in VERBS:
        raise UserError(f"'{submission.verb}' is no job", next_step=did_you_mean(submission.verb, VERBS))
    recipe = load_steps(submission.recipe, submission.overrides)[-1]
    inside = _inside(submission.recipe, submission.folder)
    refuse_large(measure(submission.folder), submission.folder, submission.limit_bytes)
    client = _client(submission.address)
    return client.submit_job(
        entrypoint=shlex.join(["python", "-m", "cairn", submission.verb, str(inside), *submission.overrides]),
        submission_id=_free_id(client, submission.verb, recipe),
        runtime_env=_runtime_environment(submission),
        metadata={"run": recipe.run_name, "fingerprint": recipe.fingerprint()},
        entrypoint_num_cpus=submission.entrypoint_cpus,
    )


def measure(folder: Path) -> Upload:
    """What Ray's own packing would take along from `folder`."""
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    quiet = logging.getLogger("cairn.upload")
    found: list[tuple[Path, int]] = []

    def note(path: Path) -> None:
        if path.is_file():
            found.append((path.relative_to(folder), path.stat().st_size))

    _dir_travel(folder, [_get_excludes(folder, list(ALWAYS_EXCLUDED))], note, include_gitignore=True, logger=quiet)
    return Upload(tuple(sorted(found, key=lambda item: (-item[1], str(item[0])))))


def refuse_large(upload: Upload, folder: Path, limit_bytes: int) -> None:
    """UserError naming the largest paths when the upload is above the limit."""
    if upload.total_bytes <= limit_bytes:
        return
    largest = "\n".join(f"  {size / 2**20:10.1f} MiB  {path}" for path, size in upload.files[:LARGEST_SHOWN])
    raise UserError(
        f"the upload is {upload.total_bytes / 2**20:.1f} MiB, above the limit of {limit_bytes / 2**20:.1f} MiB; "
        f"the largest:\n{largest}",
        where=str(folder),
        next_step="name data and weights in .rayignore and put them on storage that every node sees, "
        "or raise --max-upload-mib",
    )


def follow(job: str, *, address: str, write: Callable[[str], None]) -> None:
    """Write the job's log until it ends; CairnError when it did not succeed. Stopping to follow leaves it running."""
    client = _client(address)

    async def tail() -> None:
        async for text in client.tail_job_logs(job):
            write(text)

    asyncio.run(tail())
    info = client.get_job_info(job)
    if info.status != "SUCCEEDED":
        raise CairnError(
            f"job {job} ended as {info.status}: {info.message or 'no message'}",
            where=address,
            next_step=f"read its log: ray job logs {job} --address {address}",
        )


def _inside(recipe: Path, folder: Path) -> Path:
    """The recipe's path as the job sees it, from its working directory."""
    try:
        return recipe.resolve().relative_to(folder)
    except ValueError:
        raise UserError(
            "the recipe lies outside the folder that is uploaded",
            where=str(recipe),
            next_step=f"copy it into {folder}, or give --working-dir",
        ) from None


def _client(address: str) -> Any:
    from ray.job_submission import JobSubmissionClient

    try:
        return JobSubmissionClient(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"no cluster answers ({str(error).splitlines()[0]})",
            where=address,
            next_step="give the dashboard's address, as in --address http://head:8265 (`ray start --head` prints it)",
        ) from error


def _free_id(client: Any, verb: str, recipe: Recipe) -> str:
    """Run name and attempt: an id is never reused, Ray refuses the second job under it."""
    taken = {job.submission_id for job in client.list_jobs()}
    attempt = 1
    while (name := f"{verb}-{recipe.run_name}-{attempt}") in taken:
        attempt += 1
    return name


def _runtime_environment(submission: Submission) -> dict[str, Any]:
    absent = [name for name in submission.variables if name not in os.environ]
    if absent:
        raise UserError(f"not set here: {', '.join(absent)}", where="--env", next_step="export it first")
    return {
        "working_dir": str(submission.folder),
        "py_modules": [str(package_folder())],
        "excludes": list(ALWAYS_EXCLUDED),
        "env_vars": {name: os.environ[name] for name in submission.variables},
    }
