"""Every adapter method against what it claims, and the kept table of proofs against a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from peft import PeftType

from cairn.adapters.attach import attach_saved
from cairn.adapters.proof import LIBRARIES, small_values, verdicts
from cairn.adapters.proven import proven
from cairn.adapters.specimens import ARCHITECTURES, build_specimen, probe_tokens
from cairn.errors import AdapterError
from cairn.plugins import METHODS

pytestmark = pytest.mark.slow


def on(architectures: tuple[str, ...]) -> list[tuple[str, str]]:
    """Every method on some of the architectures, in turn, so that each pair of neighbours is covered."""
    names = METHODS.names()
    return [(name, architectures[i % len(architectures)]) for i, name in enumerate(names)]


EVERY = [(name, architecture) for name in METHODS.names() for architecture in ARCHITECTURES]
DAILY = set(on(ARCHITECTURES))


def test_the_table_knows_every_method_and_the_installed_versions():
    kept = proven()
    assert sorted(kept["methods"]) == METHODS.names(), "run: python -m cairn.adapters.proof"
    assert kept["versions"] == {library: metadata.version(library) for library in LIBRARIES}
    assert all(sorted(found) == sorted(ARCHITECTURES) for found in kept["methods"].values())


def test_every_method_of_the_installed_peft_is_a_file_here():
    missing = sorted(kind.value for kind in PeftType if kind.value.lower() not in METHODS.names())
    assert missing == []


def test_nothing_fails_that_is_claimed():
    failing = [
        (name, architecture, claim)
        for name, found in proven()["methods"].items()
        for architecture, claims in found.items()
        for claim, holds in claims.items()
        if holds is False or claim == "fails"
    ]
    assert failing == []


@pytest.mark.parametrize(
    ("name", "architecture"),
    [pytest.param(*pair, marks=() if pair in DAILY else pytest.mark.full) for pair in EVERY],
)
def test_the_table_says_what_a_run_finds(name, architecture):
    assert verdicts(name, architecture) == proven()["methods"][name][architecture]


@pytest.mark.parametrize("name", [n for n in METHODS.names() if not METHODS.load(n).refused and n != "full"])
def test_on_a_bf16_base_the_same_parameters_are_trained(name):
    method = METHODS.load(name)
    chosen = method(method.Config.parse(small_values(name)))
    trained = [
        sorted(n for n, p in chosen.attach(build_specimen("llama").to(dtype)).named_parameters() if p.requires_grad)
        for dtype in (torch.float32, torch.bfloat16)
    ]
    assert trained[0] == trained[1]


@pytest.mark.parametrize("init", ["pissa", "pissa_niter_4", "olora"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_began_in_the_base_is_saved_for_the_untouched_base(init, dtype, tmp_path):
    method = METHODS.load("lora")
    lora = method(method.Config(rank=4, init=init))
    torch.manual_seed(1)
    adapted = lora.attach(build_specimen("llama").to(dtype))
    base = build_specimen("llama").to(dtype)
    weight = adapted.get_base_model().model.layers[0].self_attn.q_proj.base_layer.weight
    assert float((weight - base.model.layers[0].self_attn.q_proj.weight).abs().max()) > 1e-2
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.add_(0.05 * torch.randn_like(parameter))
        lora.save(adapted, tmp_path)
        wanted = adapted.eval()(input_ids=probe_tokens()).logits.float()
        found = attach_saved(base, tmp_path)(input_ids=probe_tokens()).logits.float()
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 8
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    assert float((found - wanted).norm() / wanted.norm()) < tolerance


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"target_modules": "q_proj|k_proj"}, "regular expressions"),
        ({"oft_block_size": -3}, "greater than"),
        ({"auto_mapping": None, "coft": True}, "coft = True"),
        ({"no_such_field": "x"}, "no_such_field"),
        ({"peft_type": "NO_SUCH"}, "which is no method here"),
        ({"peft_type": "XLORA"}, "the method 'xlora' is not taken: PEFT's generates without a cache"),
        ({"layers_to_transform": [0]}, "layers_to_transform"),
    ],
)
def test_a_config_that_asks_for_more_is_refused_and_the_model_left_alone(change, reason, tmp_path):
    method = METHODS.load("oft")
    oft = method(method.Config(block_size=16))
    oft.save(oft.attach(build_specimen("llama")), tmp_path)
    _saved_again(tmp_path, **change)
    base = build_specimen("llama")
    before = list(base.state_dict())
    with pytest.raises(AdapterError, match=reason):
        attach_saved(base, tmp_path)
    assert list(base.state_dict()) == before


def test_tensors_that_are_not_the_methods_are_refused_and_the_model_left_alone(tmp_path):
    from safetensors.torch import load_file, save_file

    method = METHODS.load("vera")
    vera = method(method.Config(rank=8))
    vera.save(vera.attach(build_specimen("llama")), tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    tensors = load_file(path)
    first = next(iter(tensors))
    for broken, reason in (
        ({k: v for k, v in tensors.items() if k != first}, "is missing"),
        (tensors | {"base_model.model.x": torch.zeros(2)}, "no place on this model"),
        (tensors | {first: torch.zeros(3)}, "has the shape"),
        (tensors | {first: torch.full_like(tensors[first], float("nan"))}, "NaN"),
    ):
        save_file(broken, path)
        base = build_specimen("llama")
        before = list(base.state_dict())
        with pytest.raises(AdapterError, match=reason):
            attach_saved(base, tmp_path)
        assert list(base.state_dict()) == before


def test_where_peft_stops_half_way_the_model_is_as_it_was(tmp_path):
    """Groups of 64 outputs fit q_proj, the first layer, and not k_proj, the second."""
    method = METHODS.load("road")
    road = method(method.Config(group_size=32))
    road.save(road.attach(build_specimen("llama")), tmp_path)
    _saved_again(tmp_path, group_size=64)
    base = build_specimen("llama")
    before = list(base.state_dict())
    with pytest.raises(AdapterError, match="PEFT cannot make it on this model"):
        attach_saved(base, tmp_path)
    assert list(base.state_dict()) == before
    assert not any("lora" in type(module).__module__ or "peft" in type(module).__module__ for module in base.modules())
    attach_saved(base, _saved_again(tmp_path, group_size=32))


def _saved_again(folder: Path, **change: object) -> Path:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    return folder


def test_the_command_prints_the_table_and_runs_a_proof():
    def cairn(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cairn", "adapters", "methods", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"COLUMNS": "200"},
            cwd=Path(__file__).parents[2],
        )
        return done.stdout

    rows = json.loads(cairn("--json"))
    assert [row["name"] for row in rows] == METHODS.names()
    assert all({"name", "proven", "reason", "capabilities"} <= set(row) for row in rows)
    assert all(row["proven"] or row["reason"] for row in rows)
    shown = cairn("--prove", "c3a")
    assert "llama" in shown
    assert "Conv1D" in shown
