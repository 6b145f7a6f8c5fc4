"""What tells adapters apart by a prompt's features, in one of two kinds; neither draws anything at random.

Last hidden states lie in a narrow cone, so both kinds first take away the centre: the mean of the adapters' own means,
to which a large set adds no more than a small one. What is left is brought to length 1; of a prompt that is like none of
the sets it points elsewhere, and it stays below the threshold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch.nn.functional import normalize


class Classifier(ABC):
    """`tensors` are all that it has learned, by name: `center` [width] and those of `shapes`."""

    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ("center", "weight", "bias")

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors

    @classmethod
    def fit(cls, features: torch.Tensor, labels: torch.Tensor, *, classes: int) -> Self:
        """features: fp32 [prompts, width]; labels: int64 [prompts] in [0, classes), each at least once."""
        center = _class_means(features, labels, classes).mean(0)
        return cls({"center": center, **cls._learn(normalize(features - center, dim=-1), labels, classes)})

    @classmethod
    def shapes(cls, *, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor of a classifier of so many classes."""
        full = {"center": (width,), "weight": (classes, width), "bias": (classes,)}
        return {name: full[name] for name in cls.names}

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """fp32 [prompts, classes], higher is likelier."""
        return self._score(normalize(features - self.tensors["center"], dim=-1))

    @classmethod
    @abstractmethod
    def _learn(cls, points: torch.Tensor, labels: torch.Tensor, classes: int) -> dict[str, torch.Tensor]:
        """The tensors beside the centre, from centred features."""

    @abstractmethod
    def _score(self, points: torch.Tensor) -> torch.Tensor:
        """`scores` of centred features."""

    @abstractmethod
    def confidence(self, scores: torch.Tensor) -> torch.Tensor:
        """fp32 [prompts], how sure the best of `scores` is; what a threshold is compared with."""


class Centroid(Classifier):
    """The nearest of the adapters' mean features. A score is a cosine; the confidence its lead over the second best."""

    kind = "centroid"
    names = ("center", "weight")

    @classmethod
    def _learn(cls, points: torch.Tensor, labels: torch.Tensor, classes: int) -> dict[str, torch.Tensor]:
        return {"weight": normalize(_class_means(points, labels, classes), dim=-1)}

    def _score(self, points: torch.Tensor) -> torch.Tensor:
        return points @ self.tensors["weight"].T

    def confidence(self, scores: torch.Tensor) -> torch.Tensor:
        """A margin in [0, 2]."""
        best = scores.topk(2, dim=-1).values
        return best[:, 0] - best[:, 1]


class Linear(Classifier):
    """Multinomial logistic regression, every adapter's prompts weighing the same. A score is a probability."""

    kind = "linear"
    PENALTY: ClassVar[float] = 1e-3
    """λ of λ/2 · ‖W‖², beside the mean loss in nats."""
    STEPS: ClassVar[int] = 200

    @classmethod
    def _learn(cls, points: torch.Tensor, labels: torch.Tensor, classes: int) -> dict[str, torch.Tensor]:
        """The minimum, by L-BFGS over all prompts in float64, from zero: the problem is convex."""
        wide, weights = points.double(), 1 / torch.bincount(labels, minlength=classes).double()
        weight = torch.zeros(classes, points.shape[1], dtype=torch.float64, requires_grad=True)
        bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
        search = torch.optim.LBFGS([weight, bias], max_iter=cls.STEPS, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            search.zero_grad()
            nats = torch.nn.functional.cross_entropy(wide @ weight.T + bias, labels, weights)
            loss: torch.Tensor = nats + cls.PENALTY / 2 * weight.square().sum()
            loss.backward()
            return loss

        with torch.enable_grad():
            search.step(closure)
        return {"weight": weight.detach().float(), "bias": bias.detach().float()}

    def _score(self, points: torch.Tensor) -> torch.Tensor:
        return torch.softmax(points @ self.tensors["weight"].T + self.tensors["bias"], dim=-1)

    def confidence(self, scores: torch.Tensor) -> torch.Tensor:
        """The probability of the best, from 1/classes to 1."""
        return scores.max(dim=-1).values


KINDS: dict[str, type[Classifier]] = {"centroid": Centroid, "linear": Linear}


def _class_means(features: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """[classes, width]."""
    return torch.stack([features[labels == label].mean(0) for label in range(classes)])
