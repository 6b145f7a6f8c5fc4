"""OSF: what stays is left alone by the gradient, in every precision."""

from __future__ import annotations

import pytest
import torch

from cairn.adapters.methods.osf import Osf
from cairn.adapters.specimens import build_specimen, probe_tokens

pytestmark = pytest.mark.slow

LAYERS = ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.down_proj")
"""Square, wide and high."""


@pytest.mark.parametrize(
    ("dtype", "summed"), [(torch.float32, None), (torch.bfloat16, None), (torch.bfloat16, torch.float32)]
)
def test_the_gradient_is_turned_away_from_the_directions_that_stay(dtype, summed):
    base = build_specimen("llama").to(dtype)
    model = Osf(Osf.Config(kept=0.75)).attach(base)
    for parameter in model.parameters():
        if parameter.requires_grad and summed is not None:
            parameter.grad_dtype = summed
    model(input_ids=probe_tokens(), labels=probe_tokens()).loss.backward()
    whole = build_specimen("llama")
    for name in LAYERS:
        weight = whole.get_submodule(f"model.layers.1.{name}").weight
        u, _, vh = torch.linalg.svd(weight, full_matrices=False)
        stays = int(0.75 * min(weight.shape))
        trained = model.get_submodule(f"base_model.model.model.layers.1.{name}").osf_svd_params["default"]
        of_u, of_v = trained["U_low"].grad.float(), trained["V_low"].grad.float()
        assert trained["U_low"].shape == (weight.shape[0], min(weight.shape) - stays)
        assert float(of_u.norm()) > 0
        tolerance = 1e-4 if dtype == torch.float32 else 3e-2
        assert float((u[:, :stays].t() @ of_u).norm() / of_u.norm()) < tolerance
        assert float((of_v @ vh[:stays].t()).norm() / of_v.norm()) < tolerance


def test_too_little_that_stays_is_said():
    found = list(Osf(Osf.Config(kept=0.01)).problems(build_specimen("llama")))
    assert found == ["adapter.kept=0.01 leaves none of the 64 directions of model.layers.0.self_attn.q_proj"]
