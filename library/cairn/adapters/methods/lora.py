"""LoRA (Hu et al. 2021, arXiv 2106.09685): W·x + scaling · B·A·x with A of rank × in and B of out × rank trained.

scaling = alpha / rank, or alpha / √rank with `use_rslora` (Kalajdzievski 2023, arXiv 2312.03732). B begins at zero, so
that the adapted model begins as the base. With `use_dora` (Liu et al. 2024, arXiv 2402.09353) the norm of each output is
trained apart. PiSSA (Meng et al. 2024, arXiv 2404.02948) and OLoRA (Büyükakyüz 2024, arXiv 2406.01775) begin A and B in
W itself and take them out of it; so do CorDA and LoRA-GA (`cairn.adapters.beginnings`). What is saved of these is
converted, so that it stands on the untouched base, at twice the rank. The experts of a mixture, whose linears are one
stacked weight, each get an A and B of their own with `parameters`; W + scaling · B·A is then made in every pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from cairn.adapters.linear_change import LinearChange
from cairn.adapters.method import Capabilities
from cairn.adapters.methods._tokens import token_problems
from cairn.adapters.peft_config import ALORA, LEFT_OUT, is_literal
from cairn.adapters.peft_method import OnLinears, PeftMethod
from cairn.errors import AdapterError

if TYPE_CHECKING:
    from cairn.adapters.preview import Preview

CHANGING = ("pissa", "pissa_niter_4", "pissa_niter_16", "olora", "corda", "corda_kpm", "lora_ga")
"""Beginnings that change the base."""
MAX_RANK, MAX_CHANGING_RANK = 256, 128
EXPERTS = "experts"
LOOKING = ("eva", "corda", "corda_kpm", "lora_ga")
"""Beginnings in the run's first rows."""
OWN = (*LOOKING, "loftq", "mica")
"""Those of `cairn.adapters.beginnings`; the others are PEFT's."""


class Lora(PeftMethod):
    """Low-rank updates beside frozen linears, through PEFT."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True, converts="exact")

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
        init: Literal[
            "zero", "gaussian", "orthogonal", "pissa", "pissa_niter_4", "pissa_niter_16", "olora", "eva", "corda",
            "corda_kpm", "lora_ga", "loftq", "mica",
        ] = Field("zero", serialization_alias="init_lora_weights", description="how A and B begin")  # fmt: skip
        init_rows: int = Field(64, gt=0, description="rows that eva, corda and lora_ga begin in")
        init_documents: tuple[str, ...] = Field(
            (), description="with corda_kpm: files of documents that say what the base knows and shall go on knowing"
        )
        rho: float = Field(2.0, ge=1, description="with eva: a layer's rank is at most rho × rank; 1: all are equal")
        rank_pattern: dict[str, int] = Field({}, description="another rank for layers whose path ends so")
        alpha_pattern: dict[str, float] = Field({}, description="another strength for layers whose path ends so")
        modules_to_save: tuple[str, ...] = Field((), description="modules that are trained and saved whole")
        parameters: Literal["experts"] | tuple[str, ...] = Field(
            (), serialization_alias="target_parameters", description="weights of stacked experts by name, or: experts"
        )
        tokens: tuple[int, ...] = Field(
            (), serialization_alias="trainable_token_indices", description="ids whose embeddings are trained too"
        )

        @field_validator("rank_pattern", "alpha_pattern")
        @classmethod
        def _names_layers(cls, pattern: dict[str, float]) -> dict[str, float]:
            for key in pattern:
                if not is_literal(key):
                    raise ValueError(f"'{key[:60]}' is no name of a layer (regular expressions are not run)")
            return pattern

    config: Config
    left_out = LEFT_OUT
    variants: ClassVar[dict[str, str]] = {ALORA: "alora"}

    @property
    def changes_base(self) -> bool:
        """As its beginning does."""
        return self.config.init in CHANGING

    @property
    def off_is_start(self) -> bool:
        """Not where B begins beside zero."""
        return not self.changes_base and self.config.init != "loftq"

    @property
    def first_rows(self) -> int:
        """As the recipe says, of a beginning that needs them."""
        return self.config.init_rows if self.config.init in LOOKING else 0

    @property
    def first_documents(self) -> tuple[str, ...]:
        """As the recipe says."""
        return self.config.init_documents

    def find(self, model: Any) -> list[str]:
        """Those of the layers that are asked for."""
        return in_layers(super().find(model), self.config.layers)

    def problems(self, model: Any) -> Iterator[str]:
        """Also of `parameters` and `tokens`."""
        from cairn.models.experts import stacked_weights

        yield from super().problems(model)
        yield from token_problems(self.config.tokens, model)
        config, known = self.config, stacked_weights(model)
        names = [config.parameters] if isinstance(config.parameters, str) else config.parameters
        for name in names:
            found = stacked_named(known, name)
            if not found:
                stems = sorted({path.rpartition(".")[2] for path in known})
                yield f"adapter.parameters names '{name}'; the model's stacked weights are: {', '.join(stems) or 'none'}"
            elif config.rank > min(min(known[path][1:]) for path in found):
                yield f"adapter.rank={config.rank} is above the smaller side of {found[0]} {known[found[0]][1:]}"
        other = config.init not in ("zero", "gaussian") or config.rank_pattern or config.alpha_pattern
        if names and (config.dropout or config.use_dora or other):
            yield "adapter.parameters goes with no dropout, no use_dora, no patterns and no init but zero or gaussian"

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Ranks above a side, patterns that name nothing, and what does not go together."""
        yield from super().misfits(shapes)
        for key in ("rank_pattern", "alpha_pattern"):
            for name in getattr(self.config, key):
                if not any(path == name or path.endswith(f".{name}") for path in shapes):
                    yield f"adapter.{key} names '{name}', which is no layer that is adapted"
        init, patterns = self.config.init, self.config.rank_pattern or self.config.alpha_pattern
        if self.changes_base and (self.config.use_dora or patterns):
            yield f"adapter.init={init} goes with no use_dora and no patterns: it is converted when saved"
        elif init in OWN and patterns:
            yield f"adapter.init={init} goes with no patterns: the beginning decides"
        if self.changes_base and self.config.rank > MAX_CHANGING_RANK:
            yield f"adapter.rank={self.config.rank} with init={init} is saved at twice that, at most 256"
        if init == "eva" and self.config.rho * self.config.rank > MAX_RANK:
            yield f"adapter.rank={self.config.rank} with rho={self.config.rho:g} gives layers more than {MAX_RANK}"
        if init == "lora_ga" and any(2 * self.config.rank > min(shape) for shape in shapes.values()):
            yield f"adapter.rank={self.config.rank} with init=lora_ga needs twice that on the smaller side of each layer"
        if (init == "corda_kpm") != bool(self.config.init_documents):
            yield "adapter.init=corda_kpm and adapter.init_documents go together: it keeps what these say"
        if init == "mica" and self.config.freeze_a:
            yield "adapter.init=mica trains A alone, adapter.freeze_a=true B alone"

    def change_of(self, layer: Any) -> LinearChange | None:
        """B·A, and with DoRA the outputs scaled to their trained norms, the bias apart; None of stacked weights."""
        if hasattr(layer, "parameter_name"):
            return None
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight * layer.scaling["default"]
        if "default" not in layer.lora_magnitude_vector:
            return LinearChange(down=down, up=up)
        magnitude, base = layer.lora_magnitude_vector["default"], layer.get_base_layer()
        scale = magnitude.weight / magnitude.get_weight_norm(base.weight, up @ down, scaling=1)
        bias = getattr(base, "bias", None)
        return LinearChange(
            down=down, up=scale[:, None] * up, scale=scale, bias=None if bias is None else (1 - scale) * bias
        )

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """PEFT's words for the strength and the beginning."""
        values = super().fields(model, names)
        for key in ("layers", "freeze_a", "init_rows", "init_documents", "rho"):
            del values[key]
        whole = list(self.config.modules_to_save)
        return values | {
            "target_parameters": self._stacked(model) or None,
            "trainable_token_indices": list(self.config.tokens) or None,
            "lora_alpha": self.config.alpha or 2 * self.config.rank,
            "init_lora_weights": {"zero": True}.get(self.config.init, self.config.init),
            "modules_to_save": whole or None,
        }

    def _stacked(self, model: Any) -> list[str]:
        """Paths of the stacked weights that are asked for, in the layers that are."""
        from cairn.models.experts import stacked_weights

        wanted, known = self.config.parameters, stacked_weights(model)
        names = (wanted,) if isinstance(wanted, str) else wanted
        return in_layers([path for name in names for path in stacked_named(known, name)], self.config.layers)

    def attach(self, model: Any) -> Any:
        """Also of what is on the meta device, which has no beginning. AdapterError for one in rows: see `begin`."""
        if self.config.init not in OWN or next(model.parameters()).is_meta:
            return super().attach(model)
        if self.first_rows:
            raise AdapterError(
                f"{self.config.init} begins in rows of data", where="adapter.init", next_step="use Method.begin"
            )
        return self._begun(model, None)

    def begin(self, model: Any, preview: Preview) -> Any:
        """As `attach`, from the activations or gradients of the first rows where the beginning is made of them."""
        return self._begun(model, preview) if self.first_rows else self.attach(model)

    def begin_again(self, model: Any, folder: Path) -> Any:
        """As `begin` did, with what is saved in `folder`."""
        from cairn.adapters.beginnings import begun, read_beginning

        return begun(self, model, read_beginning(folder, converted=self.changes_base))

    def _begun(self, model: Any, preview: Preview | None) -> Any:
        from cairn.adapters.beginnings import beginning_of, begun

        rank, config = self.config.rank, self.config
        strength = (config.alpha or 2 * rank) / (rank**0.5 if config.use_rslora else rank)
        paths = self.find(model)
        return begun(
            self, model, beginning_of(config.init, model, paths, preview, rank=rank, scaling=strength, rho=config.rho)
        )

    def inject(self, model: Any, names: list[str]) -> Any:
        """Also keep the beginning where it was taken out of the base."""
        from cairn.adapters.beginnings import copies, freeze

        adapted = super().inject(model, names)
        if self.config.freeze_a:
            freeze(adapted, ".lora_A.")
        if self.changes_base:
            adapted.beginning = copies(adapted)
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


def stacked_named(known: Iterable[str], name: str) -> list[str]:
    """Those of the paths that are `name` or end so; all for the word experts."""
    return [path for path in known if name in (EXPERTS, path) or path.endswith(f".{name}")]


def in_layers(paths: list[str], layers: tuple[int, ...] | None) -> list[str]:
    """Those of `paths` that lie in the numbered layers; AdapterError for a number that no path has."""
    if layers is None or not paths:
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
