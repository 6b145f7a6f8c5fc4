"""`cairn adapters convert`: an adapter of any method that merges, as a plain LoRA."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.adapters.published import PublishName, Reference, open_store
from cairn.cli.arguments import StoragePath

NAME = "convert"


def command(
    reference: Reference,
    publish: PublishName,
    to: Annotated[str, typer.Option(help="What it becomes: lora.")] = "lora",
    rank: Annotated[
        int | None, typer.Option(min=1, help="The largest rank of a module; by default as much as it takes.")
    ] = None,
    bound: Annotated[float, typer.Option(min=0, help="Refuse a larger relative error.")] = 0.05,
    storage: StoragePath = None,
) -> None:
    """Publish an adapter of another method as a LoRA, which can be served among others, with its relative error."""
    from cairn.adapters.attach import attach_saved
    from cairn.adapters.convert import to_lora
    from cairn.cli.adapters.combine import show_error
    from cairn.cli.terminal import say
    from cairn.errors import AdapterError, UserError, did_you_mean
    from cairn.store.deriving import publish_derived
    from cairn.store.opening import load_base, require_adapter_files

    if to != "lora":
        raise UserError(f"there is no conversion to '{to}'", where="--to", next_step=did_you_mean(to, ["lora"]))
    store = open_store(storage)
    parent = store.resolve(reference)
    require_adapter_files(parent)
    found = to_lora(attach_saved(load_base(parent), parent.path), rank=rank)
    if found.error.total > bound:
        raise AdapterError(
            f"as a LoRA of rank {rank} it is {found.error.total:.3f} off, relative to what it changes",
            where=parent.reference,
            next_step=f"give a higher --rank, none at all for all of it, or a --bound above {bound:g}",
        )
    operation = f"convert {parent.reference} --to lora" + (f" --rank {rank}" if rank else "")
    adapter = publish_derived(store, publish, found.weights, [parent], operation=operation, error=found.error)
    say(f"{adapter.reference}: {operation}, the method was {parent.card.method}")
    show_error(found.error, rank=found.weights.rank)
