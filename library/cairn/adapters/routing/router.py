"""A router: a classifier over adapters, with the threshold below which the base answers alone. Saved as plain data.

    router.safetensors   the classifier's tensors
    router.json          kind, adapters by exact version, threshold
    chat_template.jinja  what its prompts were written with, where they were conversations

Reading runs nothing of it and checks everything: it decides which weights a request meets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError

from cairn.adapters.files import TEMPLATE_FILE, chat_template_of
from cairn.adapters.routing.classifier import KINDS, Classifier
from cairn.config.section import Section
from cairn.errors import AdapterError, UserError

TENSORS_FILE, SETTINGS_FILE = "router.safetensors", "router.json"
FEWEST, MOST = 2, 256
"""Adapters that a router chooses among."""
MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class Router:
    """`adapters`: name@version, in the order of the classifier's classes. `template`: the chat template of its prompts."""

    adapters: tuple[str, ...]
    classifier: Classifier
    threshold: float
    template: str | None = None

    def choose(self, features: torch.Tensor) -> list[str | None]:
        """The adapter for each prompt of `cairn.adapters.routing.features`; None is the base."""
        scores = self.classifier.scores(features)
        sure = self.classifier.confidence(scores) >= self.threshold
        return [
            self.adapters[best] if enough else None
            for best, enough in zip(scores.argmax(-1).tolist(), sure.tolist(), strict=True)
        ]

    def save(self, folder: Path) -> None:
        """Write the files of the module's text into `folder`."""
        from safetensors.torch import save_file

        save_file(
            {name: tensor.contiguous() for name, tensor in self.classifier.tensors.items()}, folder / TENSORS_FILE
        )
        settings = {"kind": self.classifier.kind, "adapters": self.adapters, "threshold": self.threshold}
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        if self.template is not None:
            (folder / TEMPLATE_FILE).write_text(self.template, encoding="utf-8")


class _Settings(Section):
    kind: str
    adapters: tuple[str, ...] = Field(min_length=FEWEST, max_length=MOST)
    threshold: float = Field(allow_inf_nan=False)


def load_router(folder: Path) -> Router:
    """What `Router.save` wrote; AdapterError with the reason for anything else."""
    try:
        settings = _Settings.model_validate_json((folder / SETTINGS_FILE).read_bytes())
    except OSError as error:
        raise _refused(folder, f"{SETTINGS_FILE} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _refused(folder, f"{SETTINGS_FILE}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if settings.kind not in KINDS:
        raise _refused(folder, f"'{settings.kind}' is none of {', '.join(KINDS)}")
    kind = KINDS[settings.kind]
    tensors = _tensors(folder, kind, len(settings.adapters))
    return Router(settings.adapters, kind(tensors), settings.threshold, chat_template_of(folder))


def threshold_for(confidences: torch.Tensor, *, coverage: float) -> float:
    """The highest threshold that at least the share `coverage`, in (0, 1], of `confidences` [prompts] reaches."""
    check_coverage(coverage)
    needed = math.ceil(coverage * len(confidences) - 1e-9)
    return float(confidences.sort(descending=True).values[needed - 1])


def check_coverage(coverage: float) -> None:
    """UserError for what is no share."""
    if not 0 < coverage <= 1:
        raise UserError(f"a coverage of {coverage:g}", where="coverage", next_step="take a share above 0, at most 1")


def _tensors(folder: Path, kind: type[Classifier], classes: int) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / TENSORS_FILE
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _refused(folder, f"{TENSORS_FILE} has more than {MAX_BYTES} bytes")
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _refused(folder, f"{TENSORS_FILE} cannot be read ({error})") from None
    problem = _problem(found, kind, classes)
    if problem:
        raise _refused(folder, problem)
    return found


def _problem(found: dict[str, torch.Tensor], kind: type[Classifier], classes: int) -> str:
    center = found.get("center")
    width = center.shape[0] if center is not None and center.dim() == 1 else 0
    shapes: dict[str, Any] = {name: tuple(tensor.shape) for name, tensor in found.items()}
    wanted = kind.shapes(classes=classes, width=width)
    if not width or shapes != wanted:
        return f"tensors of the shapes {shapes}, not {wanted}"
    if any(tensor.dtype != torch.float32 or not bool(tensor.isfinite().all()) for tensor in found.values()):
        return "a tensor that is not fp32, or not finite"
    return ""


def _refused(folder: Path, reason: str) -> AdapterError:
    return AdapterError(
        f"the router is refused: {reason}",
        where=str(folder),
        next_step="train it: cairn adapters route A B --publish NAME",
    )


def check_adapters(references: Sequence[str]) -> None:
    """UserError unless there is something to choose among."""
    if not FEWEST <= len(set(references)) <= MOST or len(set(references)) < len(references):
        raise UserError(
            f"a router chooses among {FEWEST} to {MOST} different adapters, these are {', '.join(references) or 'none'}",
            next_step="name each version once",
        )
