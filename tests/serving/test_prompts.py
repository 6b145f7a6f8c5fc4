"""Soft prompts over HTTP, beside the base in a running service."""

from __future__ import annotations

import httpx
import pytest
import torch
from tests.generation.methods import save_method
from tests.serving.conftest import Service
from tests.tiny import build_model, build_tokenizer

from cairn.adapters.attach import attach_saved

PROMPT = tuple(build_tokenizer()("The quick brown fox")["input_ids"])


@pytest.mark.ray
@pytest.mark.parametrize("name", ["prompt_tuning", "prefix_tuning"])
def test_over_http_it_answers_as_the_model_with_it(name: str, service: Service) -> None:
    folder = save_method(service.folders["small"].parent / name, name, {"num_virtual_tokens": 5}, build_model())

    def post(action: str, **body: str) -> int:
        return httpx.post(f"{service.url}/v1/{action}_lora_adapter", json={"lora_name": name, **body}).status_code

    assert post("load", lora_path=str(folder)) == 200
    asked = {"prompt": list(PROMPT), "max_tokens": 1, "temperature": 0, "logprobs": 1}
    completions = service.client().completions
    (found,) = completions.create(model=name, **asked).choices[0].logprobs.token_logprobs
    (plain,) = completions.create(model="tiny", **asked).choices[0].logprobs.token_logprobs
    with torch.no_grad():
        logits = [
            m(input_ids=torch.tensor([PROMPT])).logits[0, -1]
            for m in (attach_saved(build_model(), folder), build_model())
        ]
    assert [found, plain] == pytest.approx([float(row.log_softmax(-1).amax()) for row in logits], abs=1e-4)
    assert found != pytest.approx(plain, abs=1e-3)
    assert post("unload") == 200
