"""Adapter targets come from the architecture, for families that name nothing alike."""

from __future__ import annotations

import pytest
import torch
from tests.models.families import FAMILIES, build_family
from torch import nn

from cairn.adapters.specimens import build_specimen
from cairn.errors import AdapterError
from cairn.models.linears import find_targets, linear_kinds, linear_shapes, shortest_names

pytestmark = pytest.mark.unit

LLAMA = {
    "attention": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "mlp": {"gate_proj", "up_proj", "down_proj"},
    "head": {"lm_head"},
    "embedding": {"embed_tokens"},
}
EXPECTED = {
    "llama": LLAMA,
    "gemma2": LLAMA,
    "gemma3_text": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "mistral": LLAMA,
    "gpt2": {
        "attention": {"c_attn", "attn.c_proj"},
        "mlp": {"c_fc", "mlp.c_proj"},
        "head": {"lm_head"},
        "embedding": {"wte", "wpe"},
    },
    "phi3": {
        "attention": {"qkv_proj", "o_proj"},
        "mlp": {"gate_up_proj", "down_proj"},
        "head": {"lm_head"},
        "embedding": {"embed_tokens"},
    },
    "gpt_neox": {
        "attention": {"query_key_value", "attention.dense"},
        "mlp": {"dense_h_to_4h", "dense_4h_to_h"},
        "head": {"lm_head"},
        "embedding": {"embed_in"},
    },
}


@pytest.mark.parametrize("family", EXPECTED)
def test_every_linear_has_its_kind(family):
    kinds = linear_kinds(build_family(family))
    for kind, names in EXPECTED[family].items():
        for name in names:
            found = {k for path, k in kinds.items() if path == name or path.endswith(f".{name}")}
            assert found == {kind}, (name, found)
    assert set(kinds.values()) == set(EXPECTED[family])


@pytest.mark.parametrize("family", EXPECTED)
def test_auto_is_every_linear_of_attention_and_mlp_in_every_layer(family):
    model = build_family(family)
    targets = find_targets(model, "auto")
    names = EXPECTED[family]["attention"] | EXPECTED[family]["mlp"]
    assert len(targets) == 2 * len(names)
    assert set(find_targets(model, "attention")) | set(find_targets(model, "mlp")) == set(targets)
    assert set(linear_shapes(model)) == set(targets)


def test_the_router_of_a_mixture_of_experts_is_no_target():
    kinds = linear_kinds(build_family("qwen3_moe"))
    assert {kinds[path] for path in kinds if path.endswith(".gate")} <= {"router"}
    assert all(
        "gate" not in path or path.endswith("gate_proj") for path in find_targets(build_family("qwen3_moe"), "auto")
    )


def test_conv1d_shapes_are_read_as_in_and_out():
    shapes = linear_shapes(build_family("gpt2"))
    assert shapes["transformer.h.0.attn.c_attn"] == (32, 96)
    assert shapes["transformer.h.0.mlp.c_proj"] == (128, 32)


def test_names_and_paths_pick_layers():
    model = build_family("llama")
    assert find_targets(model, ["q_proj"]) == ["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"]
    assert find_targets(model, ["layers.1.mlp.up_proj"]) == ["model.layers.1.mlp.up_proj"]


def test_a_name_that_matches_nothing_names_the_nearest():
    with pytest.raises(AdapterError, match=r"adapter.targets: no linear layer is called 'q_porj'\n.*'q_proj'"):
        find_targets(build_family("llama"), ["v_proj", "q_porj"])


@pytest.mark.parametrize(("name", "kind"), [("lm_head", "head"), ("embed_tokens", "embedding")])
def test_what_adapters_share_is_refused(name, kind):
    with pytest.raises(AdapterError, match=f"is the model's {kind}"):
        find_targets(build_family("llama"), [name])


@pytest.mark.parametrize("family", FAMILIES)
def test_short_names_mean_exactly_the_same_layers(family):
    model = build_family(family)
    paths = find_targets(model, "attention")
    names = shortest_names(model, paths)
    named = {path for path, _ in model.named_modules() if any(path == n or path.endswith(f".{n}") for n in names)}
    assert named == set(paths)
    assert shortest_names(model, paths[:1]) == paths[:1]


class Packed(nn.Module):
    """A linear as GPTQ's and AWQ's packages make them: no `weight`, packed integers."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("qweight", torch.zeros(linear.in_features // 8, linear.out_features, dtype=torch.int32))


def test_linears_of_packed_integers_are_linears() -> None:
    model, plain = build_specimen("llama"), build_specimen("llama")
    for path in find_targets(plain, "auto"):
        model.set_submodule(path, Packed(model.get_submodule(path)))
    assert find_targets(model, "auto") == find_targets(plain, "auto")
    assert linear_shapes(model) == linear_shapes(plain)
