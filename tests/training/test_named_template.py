"""A base model without a chat template, from its first step to its answer: the template it is trained with by name goes
with the adapter, and whoever serves that adapter asks with it.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import recipe_for, run_local

from cairn.adapters.files import chat_template_of
from cairn.data.named_templates import choose_template
from cairn.generation.request import Event
from cairn.models.load import load_tokenizer
from cairn.serving.refusal import Refusal
from cairn.serving.replica import Call, Opening, Replica
from cairn.serving.settings import InferenceSettings
from cairn.store.store import Store
from cairn.training.folder import ADAPTER, publish

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

ASKED = ({"role": "user", "content": "Which word follows stone?"},)
ANSWER_TOKENS = 6


@pytest.fixture
def base(tmp_path: Path, tiny_path: Path) -> Path:
    """The tiny model as a base model is published: its tokenizer has no template."""
    folder = shutil.copytree(tiny_path, tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    assert load_tokenizer(folder).chat_template is None
    return folder


async def answered(replica: Replica, model: str) -> list[Any]:
    """What comes of a chat with `model`: an opening and events, or a refusal."""
    call = Call(model, {"max_tokens": ANSWER_TOKENS, "ignore_eos": True}, messages=ASKED)
    found: list[Any] = []
    async for part in replica.generate(call):
        found += part if isinstance(part, list) else [part]
    return found


def test_the_template_goes_from_the_recipe_with_the_adapter_to_the_answer(base: Path, tmp_path: Path) -> None:
    recipe = recipe_for(
        tmp_path / "runs",
        base,
        "sft",
        data={"template": "chatml"},
        training={"steps": 2},
        storage={"publish": "talker"},
    )
    assert len(run_local(recipe)) == 2
    assert publish(recipe) == "talker@1"
    taught = load_tokenizer(base)
    choose_template(taught, "chatml", where=str(base))
    assert (
        chat_template_of(Store(Path(recipe.storage.path) / "adapters").resolve("talker").path) == taught.chat_template
    )
    prompt = taught.apply_chat_template(list(ASKED), add_generation_prompt=True, return_dict=True)["input_ids"]

    replica = Replica(InferenceSettings.read({"model": str(base), "storage": recipe.storage.path}))
    opening, *events = asyncio.run(answered(replica, "talker"))
    assert opening == Opening("talker@1", len(prompt))
    assert all(isinstance(event, Event) for event in events)
    assert [event.token for event in events] == greedy(base, recipe.run_path / ADAPTER, prompt)
    (refused,) = asyncio.run(answered(replica, "base"))
    replica.engine.close()
    assert isinstance(refused, Refusal)
    assert "no chat template" in refused.message


def greedy(base: Path, adapter: Path, prompt: list[int]) -> list[int]:
    """The likeliest tokens by transformers and PEFT alone."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapter).eval()
    tokens = list(prompt)
    for _ in range(ANSWER_TOKENS):
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]
