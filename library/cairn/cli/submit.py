"""`cairn submit`: run a verb as a Ray job on a cluster, with this folder and this very Cairn uploaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.arguments import Overrides

NAME = "submit"


def command(
    verb: Annotated[str, typer.Argument(help="prepare, train or search.")],
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe inside the folder that is uploaded.")],
    overrides: Overrides = None,
    address: Annotated[
        str, typer.Option(envvar="RAY_JOBS_ADDRESS", help="The cluster's dashboard.")
    ] = "http://127.0.0.1:8265",
    folder: Annotated[Path, typer.Option("--working-dir", help="The folder to upload.")] = Path(),
    limit_mib: Annotated[float, typer.Option("--max-upload-mib", min=0, help="Refuse a larger upload.")] = 100.0,
    variables: Annotated[list[str] | None, typer.Option("--env", help="An environment variable to pass on.")] = None,
    cpus: Annotated[float | None, typer.Option("--entrypoint-cpus", help="CPUs of the driver itself.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the log until the job ends.")] = True,
) -> None:
    """Submit a verb with its recipe as a job; the recipe is checked and the upload measured first."""
    from cairn.cli.terminal import errors, say
    from cairn.cluster.submit import Submission, follow, submit

    submission = Submission(
        verb=verb,
        recipe=recipe,
        overrides=tuple(overrides or ()),
        folder=folder.resolve(),
        address=address,
        limit_bytes=int(limit_mib * 2**20),
        variables=tuple(variables or ()),
        entrypoint_cpus=cpus,
    )
    job = submit(submission)
    errors.print(f"job {job} submitted; stop it with: ray job stop {job} --address {address}", markup=False)
    if wait:
        follow(job, address=address, write=lambda text: say(text.rstrip("\n")))
    else:
        say(job)
