"""Virtual tokens saved and read: PEFT opens them and answers alike, training goes on from them, bad ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.generation.methods import save_method

from cairn.adapters.attach import attach_saved
from cairn.adapters.proof import small_values
from cairn.adapters.reading import read_other, soft_prompt
from cairn.adapters.soft_prompts import SoftPrompt, nearest_tokens, prompt_of
from cairn.adapters.specimens import ARCHITECTURES, build_specimen, probe_tokens
from cairn.errors import AdapterError
from cairn.models.load import load_model
from cairn.plugins import METHODS

pytestmark = pytest.mark.slow

SOFT = ("cartridge", "cpt", "p_tuning", "prefix_tuning", "prompt_tuning")
KINDS = {
    **{name: (name, small_values(name)) for name in SOFT},
    "lstm": ("p_tuning", {"num_virtual_tokens": 3, "encoder_reparameterization_type": "LSTM"}),
    "projected": ("prefix_tuning", {"num_virtual_tokens": 3, "prefix_projection": True}),
}
CASES = [(case, architecture) for case in KINDS for architecture in ARCHITECTURES]
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def method_of(name: str, **values: Any) -> Any:
    kind = METHODS.load(name)
    return kind(kind.Config.parse(small_values(name) | values))


@pytest.mark.parametrize(
    ("case", "architecture"),
    [pytest.param(*c, marks=() if i % 4 == 0 else pytest.mark.full) for i, c in enumerate(CASES)],
)
def test_peft_opens_it_and_answers_the_same(case: str, architecture: str, tmp_path: Path) -> None:
    from peft import PeftModel

    name, values = KINDS[case]
    save_method(tmp_path, name, values, build_specimen(architecture))
    tokens = probe_tokens()
    with torch.no_grad():
        theirs = PeftModel.from_pretrained(build_specimen(architecture), str(tmp_path)).eval()
        wanted = theirs(input_ids=tokens).logits[:, -tokens.shape[1] :]
        found = attach_saved(build_specimen(architecture), tmp_path)(input_ids=tokens).logits
        base = build_specimen(architecture)(input_ids=tokens).logits
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert float((found - base).abs().max()) > 1e-2


@pytest.mark.parametrize("kind", ["PromptTuning", "PromptEncoder", "PrefixTuning", "CPT", "Cartridge"])
def test_one_that_peft_made_is_read(kind: str, tmp_path: Path) -> None:
    import peft

    more: dict[str, Any] = {
        "CPT": {"cpt_token_ids": [5, 6, 7, 8], "opt_weighted_loss_type": "decay", "opt_loss_decay_factor": 0.9}
    }
    config = getattr(peft, f"{kind}Config")(task_type="CAUSAL_LM", **more.get(kind, {"num_virtual_tokens": 4}))
    torch.manual_seed(1)
    made = peft.get_peft_model(build_specimen("qwen3"), config).eval()
    made.save_pretrained(str(tmp_path))
    tokens = probe_tokens()
    with torch.no_grad():
        wanted = made(input_ids=tokens).logits[:, -tokens.shape[1] :]
        found = attach_saved(build_specimen("qwen3"), tmp_path)(input_ids=tokens).logits
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SOFT)
def test_training_goes_on_from_what_was_saved(name: str, tmp_path: Path) -> None:
    save_method(tmp_path, name, small_values(name), build_specimen("llama"))
    before = soft_prompt(read_other(tmp_path)).values
    model = method_of(name).go_on(build_specimen("llama"), tmp_path)
    kept = prompt_of(model)
    assert kept is not None
    torch.testing.assert_close(kept.values, before, rtol=0, atol=1e-7)
    mine = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(mine, lr=1.0)
    model.train()(input_ids=probe_tokens(), labels=probe_tokens()).loss.backward()
    optimizer.step()
    after = prompt_of(model)
    assert after is not None
    moved = (after.values - before).abs().amax(1) > 1e-6
    frozen = {"cartridge": [0], "cpt": [3]}.get(name, [])
    assert moved.tolist() == [number not in frozen for number in range(len(before))]


def test_a_context_stays_within_its_ball_and_begins_in_its_tokens() -> None:
    model = method_of("cpt").attach(build_specimen("llama"))
    rows = model.get_base_model().get_input_embeddings().weight[[5, 7, 9, 11]]
    assert torch.equal(model.prompt(), rows)
    with torch.no_grad():
        model.prompt.difference.add_(10.0)
    radius = 0.1 * (rows.shape[1] / 2048) ** 0.5
    lengths = (model.prompt() - rows).norm(dim=1)
    assert lengths.tolist() == pytest.approx([radius] * 3 + [0.0], abs=1e-6)


def test_a_prompt_begins_in_a_text_and_is_told_in_its_tokens(tiny_path: Path) -> None:
    model = load_model(tiny_path, precision="fp32")
    text = {"prompt_tuning_init": "text", "prompt_tuning_init_text": "abc"}
    adapted = method_of("prompt_tuning", num_virtual_tokens=4, **text).attach(model)
    prompt, embeddings = prompt_of(adapted), model.get_input_embeddings().weight
    assert prompt is not None
    nearest = [near[0] for near in nearest_tokens(prompt, embeddings, count=1)]
    first = nearest[0][0]
    assert [token - first for token, _ in nearest] == [0, 1, 2, 0]
    assert all(cosine == pytest.approx(1, abs=1e-5) for _, cosine in nearest)
    with pytest.raises(AdapterError, match="have no nearest tokens"):
        list(nearest_tokens(SoftPrompt(torch.zeros(2, 8), into_keys=True), embeddings))


def test_a_cartridge_begins_as_the_text_itself(tiny_path: Path) -> None:
    text = "the quick brown"
    model = load_model(tiny_path, precision="fp32")
    adapted = method_of("cartridge", num_virtual_tokens=len(text), text=text).attach(model).eval()
    from cairn.models.load import load_tokenizer

    tokens = load_tokenizer(tiny_path)(text + " fox jumps")["input_ids"]
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([tokens])).logits[0, len(text) :]
        found = adapted(input_ids=torch.tensor([tokens[len(text) :]])).logits[0]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_virtual_tokens": 5}, r"has the shape \[4, 64\], this model needs \[5, 64\]"),
        ({"num_virtual_tokens": 10**6}, "less than or equal to 4096"),
        ({"num_virtual_tokens": True}, "num_virtual_tokens"),
        ({"prompt_tuning_init": "../../x"}, "prompt_tuning_init"),
        ({"tokenizer_kwargs": {"trust_remote_code": True}}, "tokenizer_kwargs"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "MULTITASK_PROMPT_TUNING"}, "needs the number of its task"),
        ({"peft_type": "PREFIX_TUNING"}, "prompt_tuning_init"),
        ({"task_type": "SEQ_CLS"}, "it scores"),
    ],
)
def test_a_config_that_says_something_else_is_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    save_method(tmp_path, "prompt_tuning", small_values("prompt_tuning"), build_specimen("llama"))
    path = tmp_path / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(AdapterError, match=reason):
        attach_saved(build_specimen("llama"), tmp_path)


def test_tensors_that_are_not_the_prompt_are_refused(tmp_path: Path) -> None:
    save_method(tmp_path, "prompt_tuning", small_values("prompt_tuning"), build_specimen("llama"))
    values = load_file(tmp_path / WEIGHTS)["prompt_embeddings"]
    for tensors, reason in (
        ({"prompt_embeddings": values[:, :32].contiguous()}, "has 32 dimensions, this model needs 64"),
        ({"prompt_embeddings": values[0].contiguous()}, "has the shape"),
        ({"prompt_embeddings": values, "base_model.x": values + 1}, "no place on this model"),
        ({"other": values}, "prompt_embeddings is missing"),
        ({"prompt_embeddings": torch.full_like(values, float("nan"))}, "NaN"),
        ({"prompt_embeddings": torch.zeros(4, 64, dtype=torch.int64)}, "are whole numbers"),
    ):
        save_file(tensors, tmp_path / WEIGHTS)
        with pytest.raises(AdapterError, match=reason):
            attach_saved(build_specimen("llama"), tmp_path)
