"""Train a router over published adapters: features of the base, a classifier, a threshold, figures, a version.

The base is loaded once and reads every prompt once; learning takes a moment beside that. What is learned, what the
threshold is chosen on and what the figures are of are different prompts.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch

from cairn.adapters.files import chat_template_of
from cairn.adapters.peft_config import CONFIG_FILE, SCORES
from cairn.adapters.routing.classifier import KINDS
from cairn.adapters.routing.evaluation import Evaluation, evaluate_router
from cairn.adapters.routing.features import prompt_features
from cairn.adapters.routing.router import Router, check_adapters, check_coverage, threshold_for
from cairn.errors import AdapterError, UserError
from cairn.models.identity import tokenizer_sha256
from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.load import load_model, load_tokenizer
from cairn.store.card import Base, Facts
from cairn.store.opening import require_base
from cairn.store.routers import ROUTER, Routers
from cairn.store.store import Adapter, Store
from cairn.training.routing_prompts import PromptSet, named_files, training_prompts

EVALUATION_FILE = "evaluation.json"
COVERAGE = 0.9


@dataclass(frozen=True)
class Settings:
    """`threshold`: none chooses the one that `coverage` of the prompts kept for it reach. `data`: NAME=FILE texts."""

    kind: Literal["centroid", "linear"] = "centroid"
    threshold: float | None = None
    coverage: float = COVERAGE
    prompts: int = 500
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainedRouter:
    """`left_out`: reference → records without a prompt, by reason."""

    router: Router
    evaluation: Evaluation
    facts: Facts
    left_out: Mapping[str, Mapping[str, int]]

    def plain(self) -> dict[str, Any]:
        """Kind, threshold and figures, as JSON would have it."""
        chosen = {"kind": self.router.classifier.kind, "threshold": self.router.threshold}
        return {**chosen, **self.evaluation.plain(), "left_out": self.left_out}

    def publish(self, name: str, storage: str | Path) -> Adapter:
        """The next version of the router `name`, with its figures."""
        with tempfile.TemporaryDirectory() as folder:
            self.router.save(Path(folder))
            (Path(folder) / EVALUATION_FILE).write_text(json.dumps(self.plain(), indent=1) + "\n", encoding="utf-8")
            return Routers(storage).publish(name, folder, self.facts)


def train_router(references: Sequence[str], storage: str | Path, settings: Settings) -> TrainedRouter:
    """A router over the adapters that `references` mean now.

    Raises AdapterError for what cannot be served on one base, or whose training data are gone; UserError for too few
    prompts or adapters.
    """
    store = Store(Path(storage) / "adapters")
    adapters = [store.resolve(reference) for reference in references]
    names = tuple(adapter.reference for adapter in adapters)
    check_adapters(names)
    check_coverage(settings.coverage)
    base = _shared_base(adapters)
    tokenizer = load_tokenizer(base.path)
    identity = tokenizer_sha256(tokenizer)
    tokenizer.chat_template = _shared_template(tokenizer, adapters)
    files = named_files(settings.data, adapters)
    sets = {
        adapter.reference: training_prompts(adapter, tokenizer, most=settings.prompts, files=files[adapter.reference])
        for adapter in adapters
    }
    router, evaluation = _learn(base.path, sets, settings, template=tokenizer.chat_template)
    known: dict[str, Any] = {
        "method": ROUTER,
        "tokenizer_sha256": identity,
        "metrics": {**evaluation.all.shares, "threshold": router.threshold},
        "parents": names,
        "operation": "route",
    }
    return TrainedRouter(
        router, evaluation, Facts(base=base, **known), {name: found.left_out for name, found in sets.items()}
    )


def _learn(
    base: str, sets: Mapping[str, PromptSet], settings: Settings, *, template: str | None
) -> tuple[Router, Evaluation]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(base, precision="fp32", device=device)
    use_frozen_linears(model, training=False)
    names, found = tuple(sets), list(sets.values())
    points, labels = _features(model, [one.learned for one in found])
    classifier = KINDS[settings.kind].fit(points, labels, classes=len(names))
    threshold = settings.threshold
    if threshold is None:
        calibrated, _ = _features(model, [one.calibrated for one in found])
        confidences = classifier.confidence(classifier.scores(calibrated))
        threshold = threshold_for(confidences, coverage=settings.coverage)
    router = Router(names, classifier, threshold, template)
    points, labels = _features(model, [one.evaluated for one in found])
    return router, evaluate_router(router, points, labels.tolist())


def _features(model: Any, prompts: Sequence[Sequence[tuple[int, ...]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of all prompts, with the number of the set that each belongs to."""
    labels = [number for number, some in enumerate(prompts) for _ in some]
    return prompt_features(model, list(chain.from_iterable(prompts))), torch.tensor(labels)


def _shared_base(adapters: Sequence[Adapter]) -> Base:
    """The one base of all; AdapterError where there is none, or an adapter cannot be served on it."""
    for problem in chain.from_iterable(map(_unservable, adapters)):
        raise AdapterError(problem, next_step="leave it out")
    first = adapters[0].card
    for adapter in adapters[1:]:
        if adapter.card.base.sha256 != first.base.sha256:
            raise AdapterError(
                f"{first.reference} was made for {first.base.path}, {adapter.reference} for another base model, "
                f"{adapter.card.base.path}",
                next_step="route among adapters of one base",
            )
    return first.base.model_copy(update={"sha256": require_base(adapters[0]), "quantization": None})


def _unservable(adapter: Adapter) -> Iterator[str]:
    if adapter.card.is_whole_model:
        yield f"{adapter.reference} is a whole model, not an adapter"
    elif CONFIG_FILE not in adapter.card.files:
        yield f"{adapter.reference} is no PEFT adapter: it has no {CONFIG_FILE}"
    elif json.loads((adapter.path / CONFIG_FILE).read_bytes()).get("task_type") == SCORES:
        yield f"{adapter.reference} is a reward adapter: it scores and does not speak"


def _shared_template(tokenizer: Any, adapters: Sequence[Adapter]) -> str | None:
    """The base model's own chat template, else the one that all adapters with one were trained with.

    UserError where they differ.
    """
    if tokenizer.chat_template:
        return str(tokenizer.chat_template)
    found = {adapter.reference: chat_template_of(adapter.path) for adapter in adapters}
    own = {reference: template for reference, template in found.items() if template}
    if len(set(own.values())) > 1:
        raise UserError(
            f"{' and '.join(own)} write conversations by different chat templates, and the base model has none",
            next_step="route among adapters of one template: which one a prompt is for is not known when it is written",
        )
    return next(iter(own.values()), None)
