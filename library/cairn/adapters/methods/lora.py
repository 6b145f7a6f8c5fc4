"""LoRA (Hu et al. 2021, arXiv 2106.09685): W·x + scaling · B·A·x with A of rank × in and B of out × rank trained.

scaling = alpha / rank, or alpha / √rank with `use_rslora` (Kalajdzievski 2023, arXiv 2312.03732). B begins at zero,
so that the adapted model begins as the base.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.adapters.method import Method
from cairn.config.section import Section
from cairn.errors import AdapterError


class Lora(Method):
    """Low-rank updates beside frozen linears, through PEFT."""

    class Config(Section):
        """Size, strength and place of the updates."""

        rank: int = Field(8, gt=0, le=256, description="rank of the update")
        alpha: float | None = Field(None, gt=0, description="strength; none: 2 × rank")
        dropout: float = Field(0.0, ge=0, lt=1, description="dropout before A")
        targets: Literal["auto", "all-linear", "attention", "mlp"] | tuple[str, ...] = Field(
            "auto", description="auto: all linears of attention and MLPs; or a list of layer names"
        )
        use_rslora: bool = Field(False, description="scale by alpha / √rank instead of alpha / rank")

    def attach(self, model: Any) -> Any:
        """A PEFT model over `model` with only A and B trainable, in the model's own dtype.

        Raises AdapterError when a target names no layer.
        """
        from peft import LoraConfig, get_peft_model

        from cairn.adapters.attach import task_type
        from cairn.adapters.files import is_transposed
        from cairn.models.linears import find_targets, shortest_names

        paths = find_targets(model, self.config.targets)
        config = LoraConfig(
            task_type=task_type(model),
            r=self.config.rank,
            lora_alpha=self.config.alpha or 2 * self.config.rank,
            lora_dropout=self.config.dropout,
            use_rslora=self.config.use_rslora,
            target_modules=shortest_names(model, paths),
            fan_in_fan_out=is_transposed(model, paths),
        )
        return get_peft_model(model, config, autocast_adapter_dtype=False)

    def go_on(self, model: Any, folder: Path) -> Any:
        """The LoRA in `folder` as it is, trainable; AdapterError where the recipe asks for another rank.

        Its own rank, strength and targets hold, and so does its dropout.
        """
        from cairn.adapters.attach import attach_fitting
        from cairn.adapters.files import read_lora

        weights = read_lora(folder, scores=None)
        asked, plain = self.config, self.Config.parse({})
        if asked.rank not in (weights.rank, plain.rank) or asked.alpha not in (weights.alpha, None):
            raise AdapterError(
                f"the adapter has rank {weights.rank} and alpha {weights.alpha:g}, and keeps its shape",
                where=str(folder),
                next_step="leave adapter.rank and adapter.alpha out, or set them to that",
            )
        return attach_fitting(model, weights, folder, trainable=True)

    def save(self, model: Any, folder: Path) -> None:
        """A PEFT directory."""
        from cairn.adapters.files import save_peft

        save_peft(model, folder)
