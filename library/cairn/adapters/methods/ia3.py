"""(IA)³ (Liu et al. 2022, arXiv 2205.05638): outputs of attention and inputs of the MLPs' last linear are multiplied by
one trained vector each: the fewest parameters of all."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from cairn.adapters.linear_change import LinearChange
from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Ia3(PeftMethod):
    """Learnt scales."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True)

    class Config(OnLinears):
        """Place."""

        inputs: tuple[str, ...] | None = Field(
            None,
            serialization_alias="feedforward_modules",
            description="layers whose inputs are scaled instead of their outputs; none: the last linear of each MLP",
        )

    def change_of(self, layer: Any) -> LinearChange:
        """Inputs or outputs are scaled."""
        scale = layer.ia3_l["default"].flatten()
        return LinearChange(turn=scale.view(-1, 1, 1)) if layer.is_feedforward else LinearChange(scale=scale)

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """With those layers found that lead from an MLP back into the residual stream."""
        if self.config.inputs is not None:
            return {"feedforward_modules": list(self.config.inputs)}
        from cairn.models.linears import find_targets, linear_kinds, linear_shapes
        from cairn.models.unwrap import text_config

        kinds, shapes = linear_kinds(model), linear_shapes(model)
        width = text_config(model).hidden_size
        last = [path for path in find_targets(model, names) if kinds[path] == "mlp" and shapes[path][1] == width]
        return {"feedforward_modules": [n for n in names if any(p == n or p.endswith(f".{n}") for p in last)]}
