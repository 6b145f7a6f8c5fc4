"""Super-Tuning (arXiv 2607.09287): the entries of W of largest magnitude are trained and nothing else; which they are is
saved with the adapter."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.peft_method import OnLinears, PeftMethod


class Supertuning(PeftMethod):
    """The largest weights."""

    class Config(OnLinears):
        """Size and place."""

        sparsity: float = Field(0.99, gt=0, lt=1, description="share of entries that stay as they are")
        largest: bool = Field(
            True, serialization_alias="select_top", description="train the largest; false: the smallest"
        )
