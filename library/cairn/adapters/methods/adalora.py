"""AdaLoRA (Zhang et al. 2023, arXiv 2303.10512): W·x + scaling / rank · P·Λ·Q·x with a diagonal Λ, of which training keeps
the components that are worth most over all layers (`cairn.adapters.rank_allocation`).

P and Q are held near orthogonality by a term in the loss, so that a component's worth is its own. The schedule is said in
shares of the run and computed from its real length. What is saved is a plain LoRA, each layer with the rank that it was
left: it loads, serves, merges and goes on as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod
from cairn.adapters.rank_allocation import Budget, Importance, Triplet, best
from cairn.adapters.train_hook import TrainHook, Values
from cairn.errors import AdapterError

ADAPTER = "default"
PARTS = ("lora_A", "lora_E", "lora_B")


class Adalora(PeftMethod):
    """Low-rank updates whose ranks are shared out while training."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True, converts="exact", zero_stage=2)
    saved_as = "lora"
    fixed: ClassVar[dict[str, Any]] = {"total_step": 1}
    """The schedule is kept here; PEFT's own allocator, which asks for the length, is never called."""
    ignored = frozenset(
        {"total_step", "tinit", "tfinal", "deltaT", "beta1", "beta2", "orth_reg_weight", "r", "rank_pattern"}
    )

    class Config(OnLinears):
        """Ranks, their schedule, strength and place."""

        rank: int = Field(
            8, serialization_alias="target_r", gt=0, le=256, description="mean rank of a layer in the end (target_r)"
        )
        initial_rank: int | None = Field(
            None,
            serialization_alias="init_r",
            gt=0,
            le=256,
            description="rank of every layer at first (init_r); none: half as much again",
        )
        alpha: float | None = Field(
            None, serialization_alias="lora_alpha", gt=0, description="strength; none: 4 × initial rank"
        )
        dropout: float = Field(0.0, serialization_alias="lora_dropout", ge=0, lt=1, description="dropout before Q")
        warmup: float = Field(0.1, ge=0, lt=1, description="share of the steps before ranks fall (tinit)")
        final: float = Field(0.3, ge=0, lt=1, description="share of the steps after the last allocation (tfinal)")
        interval: int = Field(1, gt=0, description="steps between allocations (deltaT)")
        sensitivity_decay: float = Field(0.85, gt=0, lt=1, description="smoothing of a number's sensitivity (beta1)")
        deviation_decay: float = Field(0.85, gt=0, lt=1, description="smoothing of its deviation (beta2)")
        orthogonality: float = Field(0.5, ge=0, description="weight of the term in the loss (orth_reg_weight)")

        @property
        def first_rank(self) -> int:
            """Rank of every layer before the first allocation."""
            return self.initial_rank or -(-3 * self.rank // 2)

    config: Config

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Ranks that do not fall, or above a side; a schedule without a middle."""
        first = self.config.first_rank
        if first < self.config.rank:
            yield f"adapter.initial_rank={first} is below adapter.rank={self.config.rank}, to which it should fall"
        if self.config.warmup + self.config.final >= 1:
            yield f"adapter.warmup={self.config.warmup} and adapter.final={self.config.final} leave no step to allocate"
        small = next((path for path, sides in shapes.items() if first > min(sides)), None)
        if small is not None:
            yield f"the initial rank {first} is above the smaller side of {small} {shapes[small]}"

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """PEFT's words for the beginning; the schedule is ours."""
        first = self.config.first_rank
        return {
            "target_r": self.config.rank,
            "init_r": first,
            "lora_alpha": self.config.alpha or 4 * first,
            "lora_dropout": self.config.dropout,
        }

    @classmethod
    def words(cls) -> dict[str, str]:
        """Those of what PEFT keeps that a finished adapter still depends on."""
        kept = ("rank", "initial_rank", "alpha", "dropout")
        return {field: key for field, key in super().words().items() if key in kept}

    def inject(self, model: Any, names: list[str]) -> Any:
        """Without what PEFT leaves trainable on a bf16 base: it makes `ranknum` anew where it moves layers there."""
        adapted = super().inject(model, names)
        for _, layer in _layers(adapted):
            layer.ranknum[ADAPTER].requires_grad = False
        return adapted

    def inject_saved(self, model: Any, names: list[str], config: Mapping[str, Any]) -> Any:
        """Layers of the ranks that PEFT noted in `rank_pattern`."""
        adapted = self.inject(model, names)
        pattern = config.get("rank_pattern") or {}
        layers = {f"{path}.lora_E" for path, _ in _layers(adapted)}
        for name, kept in pattern.items():
            if name not in layers or not isinstance(kept, list) or {type(one) for one in kept} != {bool}:
                raise AdapterError(f"rank_pattern says {str(kept)[:40]} of {name[:80]!r}")
            if len(kept) != self.config.first_rank:
                raise AdapterError(
                    f"rank_pattern says {len(kept)} components of {name}, the config {self.config.first_rank}"
                )
        adapted.base_model.resize_modules_by_rank_pattern(pattern, ADAPTER)
        return adapted

    def train_hook(self, model: Any, total_steps: int) -> TrainHook:
        """The orthogonality term and the allocation of ranks."""
        return Allocation(model, self.config, total_steps)

    def go_on(self, model: Any, folder: Path) -> Any:
        """Ranks are shared out once; the result is a LoRA."""
        raise AdapterError(
            "an allocation of ranks begins anew and cannot go on from an adapter",
            where=str(folder),
            next_step="set adapter.name=lora, which goes on with the ranks that it found",
        )

    def save(self, model: Any, folder: Path) -> None:
        """A plain LoRA of the components that are not zero."""
        from cairn.adapters.files import is_transposed
        from cairn.adapters.plain import plain_lora, write_lora
        from cairn.models.scores import trained_head

        pairs = {path: pair for path, layer in _layers(model) if (pair := _pair(layer)) is not None}
        if not pairs:  # nothing was learned: one component a layer, which does nothing
            pairs = {path: _component(layer) for path, layer in _layers(model)}
        lora = plain_lora(pairs, transposed=is_transposed(model, list(pairs)), head=trained_head(model))
        write_lora(lora, folder, base=str(model.peft_config[ADAPTER].base_model_name_or_path or ""))


class Allocation(TrainHook):
    """Which components of which layer are kept; `kept` is what the last allocation chose."""

    def __init__(self, model: Any, config: Adalora.Config, total_steps: int) -> None:
        self.config = config
        self.layers = dict(_layers(model))
        parameters = {id(parameter): name for name, parameter in model.named_parameters()}
        self.names = {
            path: tuple(parameters[id(getattr(layer, part)[ADAPTER])] for part in PARTS)
            for path, layer in self.layers.items()
        }
        self.watched = tuple(name for names in self.names.values() for name in names)
        count = len(self.layers)
        begins, ends = round(config.warmup * total_steps), total_steps - round(config.final * total_steps)
        self.budget = Budget(config.first_rank * count, config.rank * count, begins, max(ends, begins + 1))
        self.importance = Importance(sensitivity_decay=config.sensitivity_decay, deviation_decay=config.deviation_decay)
        self.device = next(iter(self.layers.values())).lora_A[ADAPTER].device
        everything = torch.ones(config.first_rank, dtype=torch.bool, device=self.device)
        self.kept = dict.fromkeys(self.layers, everything)
        self.settled = False
        self.distance = 0.0

    def penalty(self) -> torch.Tensor:
        """Weight times the mean of ‖PᵀP − I‖ and ‖QQᵀ − I‖ over all layers (Frobenius), as PEFT takes it."""
        norms = []
        for layer in self.layers.values():
            q, p = layer.lora_A[ADAPTER].float(), layer.lora_B[ADAPTER].float()
            norms += [_distance(q @ q.T), _distance(p.T @ p)]
        mean = torch.stack(norms).mean()
        self.distance = mean.item()
        return self.config.orthogonality * mean

    def after_step(self, step: int, values: Values, gradients: Values) -> dict[str, torch.Tensor]:
        """Λ without the components that are not kept."""
        if not self.settled:
            if step < self.budget.ends or not self.importance.sensitivity:
                for path, names in self.names.items():
                    self.importance.observe(path, _triplet(names, values), _triplet(names, gradients))
            self.settled = step >= self.budget.ends
            if not self.settled and (step <= self.budget.begins or step % self.config.interval):
                return {}
            self.kept = best(self.importance.scores(), self.budget.at(step))
        return {names[1]: values[names[1]] * self.kept[path][:, None] for path, names in self.names.items()}

    def ranks(self) -> dict[str, int]:
        """Components of each layer that were kept last, by path."""
        return {path: int(kept.sum()) for path, kept in self.kept.items()}

    def figures(self) -> dict[str, float]:
        """The mean rank, and the distance from orthogonality."""
        ranks = self.ranks()
        return {"mean_rank": sum(ranks.values()) / len(ranks), "orthogonality_distance": self.distance}

    def state(self) -> dict[str, torch.Tensor]:
        """What is kept, and what all is worth until that is settled."""
        found = {f"kept/{path}": kept for path, kept in self.kept.items()}
        found["settled"] = torch.tensor(self.settled)
        for kind in ("sensitivity", "deviation"):
            for path, parts in getattr(self.importance, kind).items():
                found |= {f"{kind}/{path}/{part}": value for part, value in zip(PARTS, parts, strict=True)}
        return found

    def restore(self, state: Values) -> None:
        """Go on from a `state`."""
        self.settled = bool(state["settled"])
        self.kept = {path: state[f"kept/{path}"].to(self.device) for path in self.layers}
        for kind in ("sensitivity", "deviation"):
            seen = [path for path in self.layers if f"{kind}/{path}/{PARTS[0]}" in state]
            parts = {path: [state[f"{kind}/{path}/{part}"].to(self.device) for part in PARTS] for path in seen}
            setattr(self.importance, kind, parts)


def _layers(model: Any) -> list[tuple[str, Any]]:
    """The adapted layers with their paths in the bare model."""
    from peft.tuners.adalora.layer import AdaLoraLayer

    from cairn.models.unwrap import base_of

    return [(path, layer) for path, layer in base_of(model).named_modules() if isinstance(layer, AdaLoraLayer)]


def _pair(layer: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A and B of the components that do something; None where none does."""
    a, b = _factors(layer)
    alive = layer.lora_E[ADAPTER].detach().view(-1) != 0
    return (a[alive], b[:, alive]) if bool(alive.any()) else None


def _component(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = _factors(layer)
    return a[:1], b[:, :1]


def _factors(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A = Λ·Q and B = scaling / rank · P, in the layer's own dtype; the product as PEFT's forward has it."""
    a, e, b = (getattr(layer, part)[ADAPTER].detach() for part in PARTS)
    strength = layer.scaling[ADAPTER] / (float(layer.ranknum[ADAPTER]) + 1e-5)
    return (a.float() * e.float()).to(a.dtype), (b.float() * strength).to(b.dtype)


def _distance(gram: torch.Tensor) -> torch.Tensor:
    return torch.linalg.norm(gram - torch.eye(len(gram), device=gram.device))


def _triplet(names: tuple[str, ...], values: Values) -> Triplet:
    q, value, p = (values[name] for name in names)
    return q, value, p
