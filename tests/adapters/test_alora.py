"""aLoRA: it acts from the last invocation of a sequence on, as PEFT's does, packed or alone, read whole or in pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import build_tokenizer

from cairn.adapters.attach import attach_saved
from cairn.adapters.beside import read_beside
from cairn.adapters.convert import to_lora
from cairn.adapters.merge import merge_adapted
from cairn.adapters.methods.alora import Alora
from cairn.adapters.methods.lora import Lora
from cairn.adapters.specimens import build_specimen
from cairn.errors import AdapterError
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.generation.scoring import score
from cairn.models.attention import forward_inputs, sees_prefixes
from cairn.models.invocation import NEVER, invoked, last_start
from cairn.training.speaking import speaking_copy

pytestmark = pytest.mark.unit

CALL = (7, 8, 9)
NONE = (11, 12, 7, 8, 13, 14, 15, 16, 17, 18)
ONCE = (11, 12, 13, *CALL, 14, 15, 16)
TWICE = (11, *CALL, 12, 13, *CALL, 14, 15)
ENDS = (21, 22, 23, 24, *CALL)
SEQUENCES = (NONE, ONCE, TWICE, ENDS)


def adapter(kind: Any, values: dict[str, Any]) -> Any:
    """A PEFT model whose update is large."""
    model = kind(kind.Config.parse({"rank": 4, **values})).attach(build_specimen("llama"))
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    return model.eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An aLoRA and a LoRA as they are saved."""
    root = tmp_path_factory.mktemp("alora")
    for kind, values in ((Alora, {"invocation": CALL}), (Lora, {})):
        kind(kind.Config.parse({"rank": 4, **values})).save(adapter(kind, values), root / kind.name)
    return {name: root / name for name in ("alora", "lora")}


@pytest.fixture(scope="module")
def peft(folders: dict[str, Path]) -> Any:
    """The aLoRA as PEFT itself loads it."""
    from peft import PeftModel

    return PeftModel.from_pretrained(build_specimen("llama"), str(folders["alora"])).eval()


@torch.no_grad()
def logits(model: Any, tokens: tuple[int, ...]) -> torch.Tensor:
    return model(input_ids=torch.tensor([tokens])).logits[0]


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5


@pytest.mark.parametrize("tokens", SEQUENCES)
def test_peft_opens_it_and_answers_the_same(folders: dict[str, Path], peft: Any, tokens: tuple[int, ...]) -> None:
    ours = logits(attach_saved(build_specimen("llama"), folders["alora"]), tokens)
    assert close(ours, logits(peft, tokens))
    base = logits(build_specimen("llama"), tokens)
    start = min(last_start(tokens, CALL), len(tokens))
    assert torch.equal(ours[:start], base[:start])
    assert start == len(tokens) or not close(ours[start:], base[start:])


def test_packed_samples_are_sequences_of_their_own(folders: dict[str, Path]) -> None:
    model = attach_saved(build_specimen("llama"), folders["alora"])
    tokens = torch.tensor([[token for part in SEQUENCES for token in part] + [0, 0]])
    segments = torch.tensor([[i for i, part in enumerate(SEQUENCES, 1) for _ in part] + [0, 0]])
    positions = torch.tensor([[i for part in SEQUENCES for i in range(len(part))] + [0, 0]])
    assert not sees_prefixes(model)
    with torch.no_grad():
        packed = model(**forward_inputs(tokens, segments, positions, model)).logits[0]
    for number, part in enumerate(SEQUENCES, 1):
        assert close(packed[(segments == number)[0]], logits(model, part))


def test_an_invocation_does_not_reach_over_the_end_of_a_sample() -> None:
    tokens, positions = torch.tensor([[5, 7, 8, 9, 5, 5]]), torch.tensor([[0, 1, 2, 0, 1, 2]])
    assert not invoked(tokens, positions, CALL).any()
    assert invoked(tokens, None, CALL).tolist() == [[False, True, True, True, True, True]]
    assert not invoked(tokens[:, :2], None, CALL).any()
    assert (last_start((7, 8), CALL), last_start((7, 8, 9, 7, 8, 9), CALL)) == (NEVER, 3)


def test_in_a_mixed_batch_each_answers_as_alone_however_the_prompt_is_read(folders: dict[str, Path], peft: Any) -> None:
    generator = Generator(build_specimen("llama"), build_tokenizer(), max_running=9, prefill_tokens=4)
    for name, folder in folders.items():
        generator.load(name, read_beside(folder, build_specimen("llama")))
    cases = [(name, tokens) for tokens in SEQUENCES for name in ("alora", None, "lora")]
    asked = [Request(tokens, adapter=name, max_tokens=6, ignore_eos=True) for name, tokens in cases]
    lora = attach_saved(build_specimen("llama"), folders["lora"])
    for (name, tokens), found in zip(cases, generator.generate(asked), strict=True):
        model = {"alora": peft, "lora": lora, None: build_specimen("llama")}[name]
        ids = torch.tensor([tokens])
        with torch.no_grad():
            wanted = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, min_new_tokens=6, do_sample=False
            )
        assert found.tokens == tuple(wanted[0, len(tokens) :].tolist()), (name, tokens)


def test_windows_are_scored_by_the_same_rule(folders: dict[str, Path], peft: Any) -> None:
    generator = Generator(build_specimen("llama"), build_tokenizer())
    generator.load("alora", read_beside(folders["alora"], build_specimen("llama")))
    windows = [(part[:-1], part[1:]) for part in SEQUENCES]
    found = generator.score(windows, adapter="alora")
    alone = score(attach_saved(build_specimen("llama"), folders["alora"]), windows)
    for nats, again, (inputs, targets) in zip(found, alone, windows, strict=True):
        wanted = -logits(peft, inputs).log_softmax(-1).gather(-1, torch.tensor(targets)[:, None])[:, 0]
        assert close(torch.tensor(nats), wanted)
        assert close(torch.tensor(again), wanted)
    base = generator.score(windows)
    assert base == score(build_specimen("llama"), windows)


def test_a_model_in_training_speaks_as_what_it_saves(folders: dict[str, Path]) -> None:
    trained = attach_saved(build_specimen("llama"), folders["alora"])
    spoken = Generator(speaking_copy(trained), build_tokenizer(), prefill_tokens=4)
    beside = Generator(build_specimen("llama"), build_tokenizer())
    beside.load("alora", read_beside(folders["alora"], build_specimen("llama")))
    own, named = (
        [Request(tokens, adapter=name, max_tokens=5, ignore_eos=True) for tokens in SEQUENCES]
        for name in (None, "alora")
    )
    assert [a.tokens for a in spoken.generate(own)] == [a.tokens for a in beside.generate(named)]
    windows = [(part[:-1], part[1:]) for part in SEQUENCES]
    for one, other in zip(spoken.score(windows), beside.score(windows, adapter="alora"), strict=True):
        assert close(torch.tensor(one), torch.tensor(other))


def test_what_acts_on_a_part_of_a_text_is_no_matrix(folders: dict[str, Path]) -> None:
    for refused in (merge_adapted, to_lora):
        with pytest.raises(AdapterError, match="a part of each text"):
            refused(attach_saved(build_specimen("llama"), folders["alora"]))


@pytest.mark.parametrize(
    ("invocation", "message"), [((), "invocation is missing"), ((5, 4096), "ids are 0 to 95"), ((-1,), "ids are 0 to")]
)
def test_an_invocation_that_cannot_be_is_told_before(invocation: tuple[int, ...], message: str) -> None:
    found = list(Alora(Alora.Config.parse({"invocation": invocation})).problems(build_specimen("llama")))
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize("value", ["7 8", [7, "8"], [[7]], {"7": 8}, [1.5], 7, True])
def test_a_config_that_says_nonsense_is_refused(folders: dict[str, Path], tmp_path: Path, value: Any) -> None:
    config = json.loads((folders["alora"] / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"alora_invocation_tokens": value}))
    (tmp_path / "adapter_model.safetensors").write_bytes((folders["alora"] / "adapter_model.safetensors").read_bytes())
    with pytest.raises(AdapterError):
        attach_saved(build_specimen("llama"), tmp_path)
