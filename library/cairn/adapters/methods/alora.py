"""aLoRA (Greenewald et al. 2025, arXiv 2504.12397): a LoRA that acts from an invocation on, which may come late in a text.

Before the start of the last invocation of a sequence the model is its base, token by token, so what the base has read
need not be read again. In packed rows each sample is a sequence. PEFT's layer finds the invocation once a row; here
the layers share one mask of the forward pass, and what is saved is PEFT's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from cairn.adapters.linear_change import LinearChange
from cairn.adapters.method import Capabilities
from cairn.adapters.peft_config import ALORA, CONFIG_FILE, LEFT_OUT
from cairn.adapters.peft_method import OnLinears, PeftMethod
from cairn.errors import AdapterError
from cairn.models.invocation import Invocation


class Alora(PeftMethod):
    """Low-rank updates from an invocation on."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True, merges=False, converts="no", checkpointing=False)
    peft_type = "lora"
    left_out: ClassVar[dict[str, str]] = LEFT_OUT

    class Config(OnLinears):
        """Size, strength and place of the updates, and what invokes them."""

        invocation: tuple[int, ...] = Field(
            (), serialization_alias=ALORA, description="ids of the tokens from which on it acts; needed"
        )
        rank: int = Field(8, serialization_alias="r", gt=0, le=256, description="rank of the update")
        alpha: float | None = Field(
            None, serialization_alias="lora_alpha", gt=0, description="strength; none: 2 × rank"
        )
        dropout: float = Field(0.0, serialization_alias="lora_dropout", ge=0, lt=1, description="dropout before A")
        use_rslora: bool = Field(False, description="scale by alpha / √rank instead of alpha / rank")

    config: Config

    def problems(self, model: Any) -> Iterator[str]:
        """Also of the invocation."""
        yield from super().problems(model)
        known = model.get_input_embeddings().weight.shape[0]
        if not self.config.invocation:
            yield "adapter.invocation is missing: give the ids of the tokens from which on the adapter shall act"
        elif not all(0 <= token < known for token in self.config.invocation):
            yield f"adapter.invocation names tokens that the model does not have: its ids are 0 to {known - 1}"

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """Of a plain LoRA: where it acts is decided here."""
        values = super().fields(model, names)
        return values | {"lora_alpha": self.config.alpha or 2 * self.config.rank, ALORA: None}

    def inject(self, model: Any, names: list[str]) -> Any:
        """Every layer's update waits for the model's invocation."""
        from cairn.adapters.waiting_lora import let_wait

        if not self.config.invocation:
            raise AdapterError(
                "an aLoRA without an invocation never acts",
                where="adapter.invocation",
                next_step="give the ids of the tokens from which on it shall act",
            )
        adapted = super().inject(model, names)
        let_wait(adapted, Invocation(self.config.invocation))
        return adapted

    def change_of(self, layer: Any) -> LinearChange:
        """B·A; when it acts is the adapter's."""
        return LinearChange(
            down=layer.lora_A["default"].weight, up=layer.lora_B["default"].weight * layer.scaling["default"]
        )

    def save(self, model: Any, folder: Path) -> None:
        """A PEFT directory that says the invocation."""
        super().save(model, folder)
        path = Path(folder) / CONFIG_FILE
        config = json.loads(path.read_text(encoding="utf-8")) | {ALORA: list(self.config.invocation)}
        path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
