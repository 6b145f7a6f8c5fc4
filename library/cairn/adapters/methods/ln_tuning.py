"""LayerNorm tuning (Zhao et al. 2023, arXiv 2312.11420): the norms are trained as they are, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from pydantic import Field

from cairn.adapters.linear_change import LinearChange
from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import PeftMethod
from cairn.config.section import Section
from cairn.errors import AdapterError, did_you_mean


class LnTuning(PeftMethod):
    """Trained norms."""

    can = Capabilities(layers=("LayerNorm", "RMSNorm"), converts="no")

    class Config(Section):
        """Place."""

        targets: Literal["auto"] | tuple[str, ...] = Field("auto", description="auto: every norm; or a list of names")

    def find(self, model: Any) -> list[str]:
        """Modules with a weight of one dimension whose class calls itself a norm."""
        from cairn.models.unwrap import base_of

        norms = [
            path
            for path, module in base_of(model).named_modules()
            if "norm" in type(module).__name__.lower() and getattr(module, "weight", None) is not None
        ]
        if self.config.targets == "auto":
            return norms
        found = []
        for name in self.config.targets:
            matching = [path for path in norms if path == name or path.endswith(f".{name}")]
            if not matching:
                ends = sorted({path.rpartition(".")[2] for path in norms})
                raise AdapterError(
                    f"no norm is called '{name}'", where="adapter.targets", next_step=did_you_mean(name, ends)
                )
            found += matching
        return found

    def change_of(self, layer: Any) -> LinearChange:
        """A norm is odd but for its bias, so two answers tell both of the scale and the bias."""
        width = layer.get_base_layer().weight.shape[0]
        probe = torch.randn(width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        base, trained = (f(torch.stack([probe, -probe])) for f in (layer.get_base_layer(), layer))
        scale = (trained[0] - trained[1]) / (base[0] - base[1])
        bias = (trained.sum(0) - scale * base.sum(0)) / 2
        return LinearChange(scale=scale, bias=bias if bool(bias.any()) else None)

    def problems(self, model: Any) -> Iterator[str]:
        """Names of no norm."""
        try:
            self.find(model)
        except AdapterError as error:
            yield f"{error.what}: {error.next_step}"
