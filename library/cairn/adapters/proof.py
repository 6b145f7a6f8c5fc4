"""Proof of what a method claims, run on a small model: it trains, goes on exactly, reloads, merges and converts.

Each claim is one short experiment with a verdict and the figure behind it. The verdicts of the pinned versions are kept
in `proven.json`; a test compares them with a run, so that a library that changes its mind is noticed.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch

from cairn.adapters.attach import attach_saved, attach_weights
from cairn.adapters.convert import to_lora
from cairn.adapters.method import Method
from cairn.adapters.peft_method import PeftMethod
from cairn.adapters.proven import PROVEN, proven
from cairn.adapters.specimens import ARCHITECTURES, build_specimen, probe_tokens
from cairn.errors import AdapterError
from cairn.plugins import METHODS

STEPS, RATE = 4, 3e-3
CLOSE = 1e-4
"""Largest difference of a logit, relative to the largest."""
SUITED: dict[str, dict[str, Any]] = {
    "adamss": {"rank": 8},
    "c3a": {"block_size": 16},
    "fourierft": {"frequencies": 50},
    "oft": {"block_size": 16},
    "pvera": {"rank": 16},
    "road": {"group_size": 32},
    "trainable_tokens": {"tokens": [3, 4, 5]},
    "vblora": {"length": 16, "vectors": 16},
    "vera": {"rank": 16},
    "waveft": {"frequencies": 50},
}
"""Values that suit a small model, where the defaults are for a large one."""
SMALL_RANK = 8


LIBRARIES = ("peft", "transformers", "torch")


@dataclass(frozen=True)
class Claim:
    """`holds`: True, False, or None where the method does not claim it; `figure`: what was measured."""

    holds: bool | None
    figure: float | None = None


def prove(name: str, architecture: str) -> dict[str, Any]:
    """Claim by name → Claim, of the method `name` on a small model; {"refused": reason} for one that is refused, {"unfit":
    reason} for one that does not suit the architecture."""
    method = _made(name)
    if method.refused:
        return {"refused": method.refused}
    unfit = list(method.problems(build_specimen(architecture)))
    if unfit:
        return {"unfit": unfit[0]}
    experiments: dict[str, Callable[[Method, str], Claim]] = {
        "starts": _starts,
        "trains": _trains,
        "resumes": _resumes,
        "reloads": _reloads,
        "merges": _merges,
        "converts": _converts,
    }
    return {claim: experiment(method, architecture) for claim, experiment in experiments.items()}


def verdicts(name: str, architecture: str) -> dict[str, Any]:
    """The plain outcome of a proof: claim → True, False or None; or {"refused": reason}, or {"fails": why}."""
    try:
        found = prove(name, architecture)
    except (ValueError, TypeError, RuntimeError, NotImplementedError, AttributeError, AdapterError) as error:
        return {"fails": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
    return {claim: value.holds if isinstance(value, Claim) else value for claim, value in found.items()}


def write_proven(names: Sequence[str] | None = None) -> None:
    """Prove `names` (none: every method) on every architecture and keep the verdicts; some minutes for all."""
    kept = proven()["methods"] if names is not None and PROVEN.exists() else {}
    for name in METHODS.names() if names is None else names:
        kept[name] = {architecture: verdicts(name, architecture) for architecture in ARCHITECTURES}
    versions = {library: metadata.version(library) for library in LIBRARIES}
    PROVEN.write_text(json.dumps({"versions": versions, "methods": dict(sorted(kept.items()))}, indent=1) + "\n")


def _made(name: str) -> Method:
    kind = METHODS.load(name)
    values = dict(SUITED.get(name, {}))
    if "rank" in kind.Config.model_fields:
        values.setdefault("rank", SMALL_RANK)
    method: Method = kind(kind.Config.parse(values))
    return method


def _starts(method: Method, architecture: str) -> Claim:
    base = build_specimen(architecture)
    before = _logits(base)
    torch.manual_seed(1)
    error = _difference(_logits(method.attach(base).eval()), before)
    return Claim(error < CLOSE if method.starts_as_base else None, error)


def _trains(method: Method, architecture: str) -> Claim:
    """Every parameter gets a gradient, the loss falls, and the base is as it was, bit for bit."""
    base = build_specimen(architecture)
    kept = {name: value.clone() for name, value in base.state_dict().items()}
    adapted, losses = _trained(method, base, STEPS)
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    reached = bool(trained) and all(parameter.grad is not None for parameter in trained)
    frozen = {id(p) for p in adapted.parameters() if not p.requires_grad}
    same = all(
        torch.equal(parameter, kept[_bare(name)])
        for name, parameter in adapted.named_parameters()
        if id(parameter) in frozen and _bare(name) in kept
    )
    fallen = losses[-1] - losses[0]
    return Claim(reached and same and fallen < 0, fallen)


def _resumes(method: Method, architecture: str) -> Claim:
    """Half of the steps, the parameters and moments into a fresh model, the other half: bit for bit the same."""
    straight, _ = _trained(method, build_specimen(architecture), STEPS)
    first, _ = _trained(method, build_specimen(architecture), STEPS // 2)
    moments = first.optimizer_of_proof.state_dict()
    parameters = {name: p.detach().clone() for name, p in first.named_parameters() if p.requires_grad}
    second, _ = _trained(method, build_specimen(architecture), STEPS - STEPS // 2, parameters, moments)
    return Claim(torch.equal(_logits(straight.eval()), _logits(second.eval())))


def _reloads(method: Method, architecture: str) -> Claim:
    adapted, _ = _trained(method, build_specimen(architecture), STEPS)
    with tempfile.TemporaryDirectory() as folder:
        method.save(adapted, folder)
        reloaded = _reopened(method, architecture, folder)
    error = _difference(_logits(reloaded), _logits(adapted.eval()))
    return Claim(error < CLOSE, error)


def _reopened(method: Method, architecture: str, folder: str) -> Any:
    if isinstance(method, PeftMethod):
        return attach_saved(build_specimen(architecture), folder)
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def _merges(method: Method, architecture: str) -> Claim:
    if not method.can.merges or not isinstance(method, PeftMethod):
        return Claim(None)
    adapted, _ = _trained(method, build_specimen(architecture), STEPS)
    expected = _logits(adapted.eval())
    error = _difference(_logits(adapted.merge_and_unload()), expected)
    return Claim(error < CLOSE, error)


def _converts(method: Method, architecture: str) -> Claim:
    """As a LoRA of full rank for any that merges linears; `exact` at the method's own rank."""
    if method.can.converts == "no" or not isinstance(method, PeftMethod):
        return Claim(None)
    adapted, _ = _trained(method, build_specimen(architecture), STEPS)
    expected = _logits(adapted.eval())
    exact = method.can.converts == "exact"
    found = to_lora(adapted, rank=getattr(method.config, "rank", None) if exact else None)
    error = found.error.total
    off = _difference(_logits(attach_weights(build_specimen(architecture), found.weights)), expected)
    return Claim(off < CLOSE and (not exact or error < CLOSE), max(off, error))


def _trained(
    method: Method,
    base: Any,
    steps: int,
    parameters: dict[str, torch.Tensor] | None = None,
    moments: dict[str, Any] | None = None,
) -> tuple[Any, list[float]]:
    """The model after some steps of AdamW on fixed tokens, from `parameters` and `moments` on; the losses."""
    torch.manual_seed(1)
    adapted = method.attach(base)
    named = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(named.values(), lr=RATE)
    with torch.no_grad():
        for name, value in (parameters or {}).items():
            named[name].copy_(value)
    if moments is not None:
        optimizer.load_state_dict(copy.deepcopy(moments))
    losses = [_loss(adapted)]
    first = STEPS - steps if moments is not None else 0
    for step in range(first, first + steps):
        torch.manual_seed(step)  # as the training loop does: some methods draw noise
        optimizer.zero_grad()
        adapted.train()(input_ids=probe_tokens(), labels=probe_tokens()).loss.backward()
        optimizer.step()
        losses.append(_loss(adapted))
    adapted.optimizer_of_proof = optimizer
    return adapted, losses


@torch.no_grad()
def _loss(model: Any) -> float:
    tokens = probe_tokens()
    return float(model.eval()(input_ids=tokens, labels=tokens).loss)


def _bare(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=probe_tokens()).logits
    return logits


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


if __name__ == "__main__":
    write_proven()
