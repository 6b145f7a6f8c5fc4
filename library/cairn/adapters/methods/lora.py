"""LoRA (Hu et al. 2021, arXiv 2106.09685): W·x + scaling · B·A·x with A of rank × in and B of out × rank trained.

scaling = alpha / rank, or alpha / √rank with `use_rslora` (Kalajdzievski 2023, arXiv 2312.03732). B begins at zero, so
that the adapted model begins as the base. With `use_dora` (Liu et al. 2024, arXiv 2402.09353) the norm of each output is
trained apart. PiSSA (Meng et al. 2024, arXiv 2404.02948) and OLoRA (Büyükakyüz 2024, arXiv 2406.01775) begin A and B in
W itself and take them out of it; what is saved is converted, so that it stands on the untouched base, at twice the rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod
from cairn.errors import AdapterError

CHANGING = ("pissa", "pissa_niter_4", "pissa_niter_16", "olora")
"""Beginnings that change the base."""


class Lora(PeftMethod):
    """Low-rank updates beside frozen linears, through PEFT."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True, converts="exact", mixed=True)

    class Config(OnLinears):
        """Size, strength and place of the updates."""

        rank: int = Field(8, serialization_alias="r", gt=0, le=256, description="rank of the update")
        alpha: float | None = Field(
            None, serialization_alias="lora_alpha", gt=0, description="strength; none: 2 × rank"
        )
        dropout: float = Field(0.0, serialization_alias="lora_dropout", ge=0, lt=1, description="dropout before A")
        layers: tuple[int, ...] | None = Field(None, description="numbers of the layers; none: all")
        use_rslora: bool = Field(False, description="scale by alpha / √rank instead of alpha / rank")
        use_dora: bool = Field(False, description="train the norms of the outputs apart (DoRA)")
        freeze_a: bool = Field(False, description="train B alone (LoRA-FA, arXiv 2308.03303)")
        init: Literal["zero", "gaussian", "orthogonal", "pissa", "pissa_niter_4", "pissa_niter_16", "olora"] = Field(
            "zero", serialization_alias="init_lora_weights", description="how A and B begin"
        )
        rank_pattern: dict[str, int] = Field({}, description="another rank for layers whose path ends so")
        alpha_pattern: dict[str, float] = Field({}, description="another strength for layers whose path ends so")
        modules_to_save: tuple[str, ...] = Field((), description="modules that are trained and saved whole")

    config: Config

    @property
    def off_is_start(self) -> bool:
        """Not where the base was changed at the beginning."""
        return self.config.init not in CHANGING

    def find(self, model: Any) -> list[str]:
        """Those of the layers that are asked for."""
        return in_layers(super().find(model), self.config.layers)

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Ranks above a side, patterns that name nothing, and what does not go together."""
        yield from super().misfits(shapes)
        for key in ("rank_pattern", "alpha_pattern"):
            for name in getattr(self.config, key):
                if not any(path == name or path.endswith(f".{name}") for path in shapes):
                    yield f"adapter.{key} names '{name}', which is no layer that is adapted"
        if not self.off_is_start and (self.config.use_dora or self.config.rank_pattern or self.config.alpha_pattern):
            yield f"adapter.init={self.config.init} goes with no use_dora and no patterns: it is converted when saved"
        if not self.off_is_start and self.config.rank > MAX_CHANGING_RANK:
            yield f"adapter.rank={self.config.rank} with init={self.config.init} is saved at twice that, at most 256"

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """PEFT's words for the strength and the beginning."""
        values = super().fields(model, names)
        del values["layers"], values["freeze_a"]
        whole = list(self.config.modules_to_save)
        return values | {
            "lora_alpha": self.config.alpha or 2 * self.config.rank,
            "init_lora_weights": {"zero": True}.get(self.config.init, self.config.init),
            "modules_to_save": whole or None,
        }

    def inject(self, model: Any, names: list[str]) -> Any:
        """Also keep the beginning where it was taken out of the base."""
        adapted = super().inject(model, names)
        if self.config.freeze_a:
            for name, parameter in adapted.named_parameters():
                if ".lora_A." in name:
                    parameter.requires_grad = False
        if not self.off_is_start:
            parts = {name: p for name, p in adapted.named_parameters() if ".lora_A." in name or ".lora_B." in name}
            adapted.beginning = {name: parameter.detach().clone() for name, parameter in parts.items()}
        return adapted

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """A saved one has its beginning behind it."""
        values = {key: value for key, value in super().read(config).items() if value is not None}
        return values | {"init": "zero"}

    def go_on(self, model: Any, folder: Path) -> Any:
        """The LoRA in `folder` as it is, trainable; AdapterError where the recipe asks for another rank.

        Its own rank, strength and targets hold, and so does its dropout.
        """
        from cairn.adapters.attach import attach_fitting
        from cairn.adapters.files import read_lora
        from cairn.adapters.peft_config import says_lora

        if not says_lora(folder):
            return super().go_on(model, folder)
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
        """A PEFT directory; what began in the base is written as its difference from the beginning."""
        from cairn.adapters.files import save_peft, subtract_beginning

        save_peft(model, folder)
        beginning = getattr(model, "beginning", None)
        if beginning is not None:
            subtract_beginning(folder, beginning)


MAX_CHANGING_RANK = 128


def in_layers(paths: list[str], layers: tuple[int, ...] | None) -> list[str]:
    """Those of `paths` that lie in the numbered layers; AdapterError for a number that no path has."""
    if layers is None:
        return paths
    numbers = {path: next((int(part) for part in path.split(".") if part.isdigit()), None) for path in paths}
    missing = sorted(set(layers) - {number for number in numbers.values() if number is not None})
    if missing:
        most = max((number for number in numbers.values() if number is not None), default=-1)
        raise AdapterError(
            f"there is no layer {', '.join(map(str, missing))}",
            where="adapter.layers",
            next_step=f"the model has layers 0 to {most}",
        )
    return [path for path in paths if numbers[path] in layers]
