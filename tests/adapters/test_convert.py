"""What a LoRA cannot hold is told, never left out of a conversion."""

from __future__ import annotations

import pytest
import torch

from cairn.adapters.convert import to_lora
from cairn.adapters.specimens import build_specimen
from cairn.errors import AdapterError
from cairn.plugins import METHODS

pytestmark = pytest.mark.unit


def _trained(architecture="llama", **values):
    method = METHODS.load("lora")
    adapted = method(method.Config.parse({"rank": 4, **values})).attach(build_specimen(architecture)).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    return adapted


@pytest.mark.parametrize(
    ("architecture", "values", "what"),
    [
        ("llama", {"modules_to_save": ["norm"]}, "norm.weight, which a LoRA cannot"),
        ("llama", {"tokens": [5, 7]}, "changes model.embed_tokens.weight"),
        ("mixtral", {"parameters": "experts"}, "experts"),
    ],
)
def test_what_is_no_linear_is_refused(architecture, values, what):
    with pytest.raises(AdapterError, match=what):
        to_lora(_trained(architecture, **values))


def test_plain_linears_are_converted_exactly():
    assert to_lora(_trained(), rank=4).error.total < 1e-6
