"""`cairn sample`: a small real model and real text on this machine, without an account and, if need be, offline."""

from __future__ import annotations

from typing import Annotated

import typer

NAME = "sample"


def command(
    with_model: Annotated[bool, typer.Option("--model/--no-model", help="Fetch SmolLM2-135M-Instruct.")] = True,
    with_corpus: Annotated[bool, typer.Option("--corpus/--no-corpus", help="Build the sample corpus.")] = True,
) -> None:
    """Put SmolLM2-135M-Instruct and a sample corpus under CAIRN_HOME."""
    from cairn.cli.terminal import say
    from cairn.config import home

    if with_model:
        from cairn.models.sample import fetch_smollm2

        say(f"model: {fetch_smollm2(home.models())}")
    if with_corpus:
        from cairn.data.sample import build_corpus

        build_corpus(home.samples())
        say(f"corpus: {home.samples()}")
