"""What a stage is: the record it eats, its Config, and a loss that returns a sum and a weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch

from cairn.metrics import Metric
from cairn.plugins import Plugin
from cairn.records import Record

POLICY_AT_START = ""
"""The reference that is the policy before its first step."""


@dataclass(frozen=True)
class LossOutput:
    """`total`: scalar tensor, the sum of weighted losses, always connected to the graph. `weight`: what it is
    counted per. The loop alone divides, by the weight of the global batch. `metrics` are sums and weights too."""

    total: torch.Tensor
    weight: float
    metrics: dict[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True)
class Models:
    """What a loss may call. `policy(**inputs)` is the trained model, behind its engine while training.

    `reference` is the frozen model that the stage asked for, without gradient and without dropout.
    """

    policy: Callable[..., Any]
    reference: Callable[..., Any] | None = None


class Stage(Plugin):
    """One page each: read the class from top to bottom to know the stage."""

    record: ClassVar[type[Record]]
    head: ClassVar[Literal["language", "score"]] = "language"
    """What the model ends in: logits over the vocabulary, or one number."""

    state: dict[str, float]
    """What the stage remembers from step to step; saved with every checkpoint."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.state = {}

    @property
    def reference(self) -> str | None:
        """The frozen model of the losses: none, `POLICY_AT_START`, or another model's path."""
        return None

    @property
    def ahead(self) -> bool:
        """Whether `reference_values` are computed once, before the first step."""
        return False

    @property
    def reference_settings(self) -> dict[str, Any]:
        """What `reference_values` depend on beside rows and reference."""
        return {}

    @property
    def mismatches(self) -> bool:
        """Whether batches must bring each prompt with an answer to another one."""
        return False

    def weight(self, batch: Any) -> float:
        """What `loss(batch, …).weight` will be, known before the forward pass: the global batch's weight is summed
        over all micro-batches and workers before the first backward."""
        return float(batch.weights.sum())

    def before_step(self, batches: Sequence[Any], models: Models, total: Callable[[float], float]) -> None:
        """What needs the whole global batch, before the first loss; `batches` are this worker's micro-batches, and
        `total` sums a figure over the workers: all of them call it equally often."""

    def reference_values(self, batch: Any, models: Models) -> torch.Tensor:
        """The reference's log-probability of each answer, fp32 [answers], in nats."""
        raise NotImplementedError

    def loss(self, batch: Any, models: Models) -> LossOutput:
        """The loss of one micro-batch (`cairn.data.batch.Batch`)."""
        raise NotImplementedError

    def figures(self, metrics: Mapping[str, Metric]) -> dict[str, float]:
        """What is logged of the sums over all workers, by name; nothing of what was not there to count."""
        return {name: metric.value for name, metric in metrics.items() if metric.weight}

    def after_step(self, metrics: Mapping[str, Metric]) -> None:
        """The step's metrics over all workers, for a stage that keeps a running mean."""
