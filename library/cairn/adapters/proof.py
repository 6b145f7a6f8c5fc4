"""Proof of what a method claims, run on a small model: it trains, goes on exactly, reloads, is served beside others,
merges and converts.

Each claim is one short experiment with a verdict and the figure behind it. The verdicts of the pinned versions are kept
in `proven.json`; a test compares them with a run, so that a library that changes its mind is noticed.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch

from cairn.adapters.attach import attach_saved, attach_weights
from cairn.adapters.beside import beside
from cairn.adapters.convert import to_lora
from cairn.adapters.linear_change import as_changes, changed
from cairn.adapters.method import Method
from cairn.adapters.proven import PROVEN, proven
from cairn.adapters.specimens import ARCHITECTURES, build_specimen, probe_tokens
from cairn.errors import AdapterError
from cairn.plugins import METHODS

STEPS, RATE = 4, 3e-3
CLOSE = 1e-4
"""Largest difference of a logit, relative to the largest."""
SMALL: dict[str, dict[str, Any]] = {
    "adalora": {"initial_rank": 8},
    "c3a": {"block_size": 16},
    "cartridge": {"num_virtual_tokens": 4},
    "cpt": {"cpt_token_ids": [5, 7, 9, 11], "cpt_tokens_type_mask": [1, 2, 3, 4]},
    "fourierft": {"frequencies": 50},
    "freeze": {"layers": 1},
    "loha": {"rank": 4},
    "oft": {"block_size": 16},
    "p_tuning": {"num_virtual_tokens": 4},
    "prefix_tuning": {"num_virtual_tokens": 4},
    "prompt_tuning": {"num_virtual_tokens": 4},
    "road": {"group_size": 32},
    "trainable_tokens": {"tokens": list(range(64, 96))},
    "vblora": {"length": 16, "vectors": 16},
    "waveft": {"frequencies": 50},
}
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
    kind = METHODS.load(name)
    method: Method = kind(kind.Config.parse(small_values(name)))
    if method.refused:
        return {"refused": method.refused}
    unfit = list(method.problems(build_specimen(architecture)))
    if unfit:
        return {"unfit": unfit[0]}
    trained = _trained(method, architecture, STEPS)
    return {
        "starts": _starts(method, architecture),
        "trains": _trains(trained, architecture),
        "resumes": _resumes(method, architecture, trained),
        "reloads": _reloads(method, architecture, trained),
        "converts": _converts(method, architecture, trained),
        "serves": _serves(method, architecture, trained),
        "merges": _merges(method, trained),  # the last, for it consumes the model
    }


def small_values(name: str) -> dict[str, Any]:
    """Values of the method's keys that suit a small model, where the defaults are for a large one."""
    values = dict(SMALL.get(name, {}))
    if "rank" in METHODS.load(name).Config.model_fields:
        values.setdefault("rank", SMALL_RANK)
    return values


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


@dataclass(frozen=True)
class _Trained:
    """A model after some steps; `losses` before the first and after each."""

    model: Any
    optimizer: torch.optim.Optimizer
    losses: list[float]

    def logits(self) -> torch.Tensor:
        return _logits(self.model.eval())


def _starts(method: Method, architecture: str) -> Claim:
    base = build_specimen(architecture)
    before = _logits(base)
    torch.manual_seed(1)
    error = _difference(_logits(method.attach(base).eval()), before)
    return Claim(error < CLOSE if method.starts_as_base else None, error)


def _trains(trained: _Trained, architecture: str) -> Claim:
    """Every parameter gets a gradient, the loss falls, and the base is as it was, bit for bit."""
    kept = build_specimen(architecture).state_dict()
    parameters = {_bare(name): parameter for name, parameter in trained.model.named_parameters()}
    mine = [parameter for parameter in parameters.values() if parameter.requires_grad]
    reached = bool(mine) and all(parameter.grad is not None for parameter in mine)
    frozen = {name: p for name, p in parameters.items() if not p.requires_grad and name in kept}
    same = all(torch.equal(parameter, kept[name]) for name, parameter in frozen.items())
    fallen = trained.losses[-1] - trained.losses[0]
    return Claim(reached and same and fallen < 0, fallen)


def _resumes(method: Method, architecture: str, trained: _Trained) -> Claim:
    """Half of the steps, the parameters and moments into a fresh model, the other half: bit for bit the same."""
    half = _trained(method, architecture, STEPS // 2)
    again = _trained(method, architecture, STEPS, resumed=half)
    return Claim(torch.equal(trained.logits(), again.logits()))


def _reloads(method: Method, architecture: str, trained: _Trained) -> Claim:
    with tempfile.TemporaryDirectory() as folder:
        method.save(trained.model, folder)
        reloaded = _reopened(method, architecture, folder)
    error = _difference(_logits(reloaded), trained.logits())
    return Claim(error < CLOSE, error)


def _reopened(method: Method, architecture: str, folder: str) -> Any:
    if not method.makes_whole_model:
        return attach_saved(build_specimen(architecture), folder)
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def _converts(method: Method, architecture: str, trained: _Trained) -> Claim:
    """As a LoRA of full rank for any that merges linears; `exact` at the method's own rank."""
    if method.can.converts == "no":
        return Claim(None)
    exact = method.can.converts == "exact"
    found = to_lora(trained.model, rank=getattr(method.config, "rank", None) if exact else None)
    error = found.error.total
    off = _difference(_logits(attach_weights(build_specimen(architecture), found.weights)), trained.logits())
    return Claim(off < CLOSE and (not exact or error < CLOSE), max(off, error))


def _serves(method: Method, architecture: str, trained: _Trained) -> Claim:
    """What it does to each layer, as rows of one batch may differ in it, is exact; None: it has no such form."""
    if method.makes_whole_model:
        return Claim(None)
    try:
        changes = as_changes(beside(trained.model, method))
    except AdapterError:
        return Claim(None)
    error = _difference(_logits(changed(build_specimen(architecture), changes)), trained.logits())
    return Claim(error < CLOSE, error)


def _merges(method: Method, trained: _Trained) -> Claim:
    if not method.can.merges:
        return Claim(None)
    expected = trained.logits()
    error = _difference(_logits(trained.model.merge_and_unload()), expected)
    return Claim(error < CLOSE, error)


def _trained(method: Method, architecture: str, steps: int, *, resumed: _Trained | None = None) -> _Trained:
    """After `steps` steps of AdamW on fixed tokens, all of them or those that `resumed` has not taken yet."""
    torch.manual_seed(1)
    model = method.attach(build_specimen(architecture))
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(named.values(), lr=RATE)
    first = 0
    if resumed is not None:
        first = len(resumed.losses) - 1
        optimizer.load_state_dict(copy.deepcopy(resumed.optimizer.state_dict()))
        before = dict(resumed.model.named_parameters())
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.copy_(before[name])
    losses = [_loss(model)]
    for step in range(first, steps):
        torch.manual_seed(step)  # as the training loop does: some methods draw noise
        optimizer.zero_grad()
        model.train()(input_ids=probe_tokens(), labels=probe_tokens()).loss.backward()
        optimizer.step()
        losses.append(_loss(model))
    return _Trained(model, optimizer, losses)


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
