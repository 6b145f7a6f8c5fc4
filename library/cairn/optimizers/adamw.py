"""AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101): Adam with weight decay apart from the gradient.

Memory: two moments a trained parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from cairn.config.section import Section
from cairn.optimizers.base import Optimizer


class AdamW(Optimizer):
    """Torch's own AdamW over two groups: matrices decay, vectors (biases, norms) do not."""

    class Config(Section):
        """Torch's defaults but for the learning rate, which suits LoRA, and no decay."""

        learning_rate: float = Field(2e-4, gt=0, description="at the top of the schedule")
        betas: tuple[float, float] = Field((0.9, 0.999), description="decay of the two moments")
        eps: float = Field(1e-8, gt=0, description="added to the root of the second moment")
        weight_decay: float = Field(0.0, ge=0, description="decay of matrices per unit of learning rate")

    def build(self, parameters: Iterable[tuple[str, Any]]) -> Any:
        """A torch.optim.AdamW over (name, parameter) pairs."""
        from torch.optim import AdamW as TorchAdamW

        config = self.config
        return TorchAdamW(
            decay_groups(parameters, config.weight_decay), lr=config.learning_rate, betas=config.betas, eps=config.eps
        )


def decay_groups(parameters: Iterable[tuple[str, Any]], weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: tensors of two dimensions or more with `weight_decay`, the others with 0; no empty group.

    A parameter that ZeRO 3 has taken apart is judged by the shape it has when whole.
    """
    matrices: list[Any] = []
    vectors: list[Any] = []
    for _, parameter in parameters:
        whole = getattr(parameter, "ds_shape", parameter.shape)
        (matrices if len(whole) >= 2 else vectors).append(parameter)
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
