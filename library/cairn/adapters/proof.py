"""Proof of what a method claims, run on a small model: it trains, goes on exactly, reloads, is served beside others,
merges and converts.

Each claim is one short experiment with a verdict and the figure behind it. The verdicts of the pinned versions are kept
in `proven.json`; a test compares them with a run, so that a library that changes its mind is noticed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from cairn.adapters.attach import attach_saved, attach_weights
from cairn.adapters.beside import beside
from cairn.adapters.convert import to_lora
from cairn.adapters.linear_change import as_changes, changed
from cairn.adapters.merge import merge_adapted, unmerge_adapted
from cairn.adapters.method import Method
from cairn.adapters.proven import PROVEN, proven
from cairn.adapters.specimens import ARCHITECTURES, INVOKING, build_specimen
from cairn.adapters.trial import Base, Trial, difference, logits_of, train
from cairn.config.model import Quantization
from cairn.errors import AdapterError
from cairn.models.load import load_model
from cairn.models.quantization import quantised_sha256
from cairn.plugins import METHODS

STEPS = 4
CLOSE = 1e-4
"""Largest difference of a logit, relative to the largest."""
SMALL: dict[str, dict[str, Any]] = {
    "adalora": {"initial_rank": 8},
    "alora": {"invocation": [INVOKING]},
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
    base = partial(build_specimen, architecture)
    trained = train(method, base, STEPS)
    return {
        "starts": _starts(method, base),
        "trains": _trains(trained, base),
        "resumes": _resumes(method, base, trained),
        "reloads": _reloads(method, base, trained),
        "converts": _converts(method, base, trained),
        "serves": _serves(method, base, trained),
        "quantised": _quantised(method, base),
        **_merges(method, base, trained),
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


def _starts(method: Method, base: Base) -> Claim:
    model = base()
    before = logits_of(model)
    torch.manual_seed(1)
    error = difference(logits_of(method.attach(model).eval()), before)
    return Claim(error < CLOSE if method.starts_as_base else None, error)


def _trains(trained: Trial, base: Base) -> Claim:
    """Every parameter gets a gradient, the loss falls, and the base is as it was, bit for bit."""
    kept = base().state_dict()
    parameters = {_bare(name): parameter for name, parameter in trained.model.named_parameters()}
    mine = [parameter for parameter in parameters.values() if parameter.requires_grad]
    reached = bool(mine) and all(parameter.grad is not None for parameter in mine)
    frozen = {name: p for name, p in parameters.items() if not p.requires_grad and name in kept}
    same = all(torch.equal(parameter, kept[name]) for name, parameter in frozen.items())
    fallen = trained.losses[-1] - trained.losses[0]
    return Claim(reached and same and fallen < 0, fallen)


def _resumes(method: Method, base: Base, trained: Trial) -> Claim:
    """Half of the steps, the parameters and moments into a fresh model, the other half: bit for bit the same."""
    half = train(method, base, STEPS // 2)
    again = train(method, base, STEPS, resumed=half)
    return Claim(torch.equal(trained.logits(), again.logits()))


def _reloads(method: Method, base: Base, trained: Trial) -> Claim:
    with tempfile.TemporaryDirectory() as folder:
        method.save(trained.model, folder)
        reloaded = _reopened(method, base, folder)
    error = difference(logits_of(reloaded), trained.logits())
    return Claim(error < CLOSE, error)


def _reopened(method: Method, base: Base, folder: str) -> Any:
    if not method.makes_whole_model:
        return attach_saved(base(), folder)
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def _converts(method: Method, base: Base, trained: Trial) -> Claim:
    """As a LoRA of full rank for any that merges linears; `exact` at the method's own rank."""
    if method.can.converts == "no":
        return Claim(None)
    exact = method.can.converts == "exact"
    found = to_lora(trained.model, rank=getattr(method.config, "rank", None) if exact else None)
    error = found.error.total
    off = difference(logits_of(attach_weights(base(), found.weights)), trained.logits())
    return Claim(off < CLOSE and (not exact or error < CLOSE), max(off, error))


def _serves(method: Method, base: Base, trained: Trial) -> Claim:
    """What it does to each layer, as rows of one batch may differ in it, is exact; None: it has no such form."""
    if method.makes_whole_model:
        return Claim(None)
    try:
        changes = as_changes(beside(trained.model, method))
    except AdapterError:
        return Claim(None)
    error = difference(logits_of(changed(base(), changes)), trained.logits())
    return Claim(error < CLOSE, error)


def _quantised(method: Method, base: Base) -> Claim:
    """Over linears in nf4 the loss falls, their bits stay, and what is saved answers alike over them."""
    if not method.can.quantised:
        return Claim(None)
    with tempfile.TemporaryDirectory() as place:
        base().save_pretrained(place)
        small = partial(
            load_model, place, precision="fp32", attention="eager", quantization=Quantization.parse({"kind": "nf4"})
        )
        bits = quantised_sha256(small())
        trained = train(method, small, STEPS // 2)
        method.save(trained.model, Path(place) / "adapter")
        error = difference(logits_of(attach_saved(small(), Path(place) / "adapter")), trained.logits())
    learned = trained.losses[-1] < trained.losses[0]
    return Claim(error < CLOSE and learned and quantised_sha256(trained.model) == bits, error)


def _merges(method: Method, base: Base, trained: Trial) -> dict[str, Claim]:
    """Folded in it answers alike; taken out again the base is what it was, bit for bit, and so are the answers."""
    if not method.can.merges:
        return {"merges": Claim(None), "unmerges": Claim(None)}
    expected, untouched = trained.logits(), base().state_dict()
    kept = merge_adapted(trained.model)
    error = difference(logits_of(trained.model), expected)
    unmerge_adapted(trained.model, kept)
    after = {_bare(name): parameter for name, parameter in trained.model.named_parameters()}
    same = all(torch.equal(after[name], value) for name, value in untouched.items() if name in after)
    return {
        "merges": Claim(error < CLOSE, error),
        "unmerges": Claim(same and torch.equal(logits_of(trained.model), expected)),
    }


def _bare(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


if __name__ == "__main__":
    write_proven()
