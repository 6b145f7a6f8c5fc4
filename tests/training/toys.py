"""Small things to train on, and plain torch to compare with."""

from __future__ import annotations

from typing import Any

import torch
from tests.tiny import build_model

from cairn.data.batch import Batch
from cairn.stages.base import Models, Stage

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
RATE, DECAY, CLIP = 1e-3, 0.1, 0.5


def batch(seed: int, *, length: int = 20, rows: int = 1, vocabulary: int = 256) -> Batch:
    """Random tokens of which about half are trained."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocabulary, (rows, length + 1), generator=generator)
    weights = (torch.rand((rows, length), generator=generator) > 0.5).float()
    return Batch(
        tokens=tokens[:, :-1],
        labels=tokens[:, 1:],
        weights=weights,
        segments=torch.ones(rows, length, dtype=torch.long),
        positions=torch.arange(length).expand(rows, length),
        sources=tuple((f"toy:{seed}",) for _ in range(rows)),
    )


def model(precision: str, **config: Any) -> Any:
    """An untied tiny model; parameters in the precision, buffers (RoPE's frequencies) in fp32 as transformers keeps them."""
    built = build_model(**{"tie_word_embeddings": False, **config})
    for parameter in built.parameters():
        parameter.data = parameter.data.to(DTYPES[precision])
    return built


def adamw(parameters: Any) -> torch.optim.AdamW:
    """The optimizer of these tests."""
    return torch.optim.AdamW([p for p in parameters if p.requires_grad], lr=RATE, weight_decay=DECAY)


def plain_steps(
    policy: Any, stage: Stage, steps: list[list[Batch]], *, clip: float = CLIP
) -> tuple[dict[str, torch.Tensor], list[float], list[float]]:
    """Masters by name, losses and gradient norms of plain torch: fp32 masters, fp32 accumulation, one step a list."""
    policy.train()
    named = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    masters = {name: torch.nn.Parameter(p.detach().float().clone()) for name, p in named.items()}
    optimizer = adamw(masters.values())
    losses, norms = [], []
    for batches in steps:
        weight = sum(float(micro.weights.sum()) for micro in batches)
        total = 0.0
        gradients = {name: torch.zeros_like(master) for name, master in masters.items()}
        for micro in batches:
            output = stage.loss(micro, Models(policy=policy))
            (output.total / weight).backward()
            total += output.total.item()
            for name, p in named.items():
                gradients[name] += p.grad.float()
                p.grad = None
        for name, master in masters.items():
            master.grad = gradients[name]
        norms.append(float(torch.nn.utils.clip_grad_norm_(masters.values(), clip)))
        optimizer.step()
        with torch.no_grad():
            for name, p in named.items():
                p.copy_(masters[name])
        losses.append(total / weight)
    return {name: master.detach() for name, master in masters.items()}, losses, norms


def masters_of(engine: Any) -> dict[str, torch.Tensor]:
    """The engine's fp32 masters, gathered."""
    return {name: engine._get(p, "master").detach().clone() for name, p in engine.trained.items()}


def update_error(
    found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], start: dict[str, torch.Tensor]
) -> float:
    """‖(found − start) − (wanted − start)‖ / ‖wanted − start‖ over all parameters: the error of the update itself."""
    assert set(found) == set(wanted)
    difference = sum(float((found[name] - wanted[name]).double().pow(2).sum()) for name in wanted)
    moved = sum(float((wanted[name] - start[name]).double().pow(2).sum()) for name in wanted)
    return (difference / moved) ** 0.5
