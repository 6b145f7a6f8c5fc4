"""Templates by name: what they render, what ends an answer, when naming one is wrong, and how they travel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.data.recipes import data_recipe
from tests.tiny import build_tokenizer

from cairn.adapters.files import chat_template_of
from cairn.config.load import load
from cairn.data.drops import Dropped
from cairn.data.encoding import Encoder
from cairn.data.fingerprint import tokenizer_identity
from cairn.data.named_templates import choose_template, template_names
from cairn.data.pipeline import load_tokenizer_of, prepare_local
from cairn.data.rows import Sample
from cairn.errors import AdapterError, ModelError, UserError
from cairn.evaluation.subject import Subject
from cairn.records import Conversation, Message, Source

pytestmark = pytest.mark.unit

TURNS = (("system", "Be"), ("user", "Hi é"), ("assistant", " Yo\n1 "), ("user", "ok"), ("assistant", "bye"))
TALK = Conversation(Source("f.jsonl", 1), tuple(Message(*turn) for turn in TURNS))

RENDERED = {
    "chatml": "<|im_start|>system\nBe<|im_end|>\n<|im_start|>user\nHi é<|im_end|>\n<|im_start|>assistant\n« Yo\n1 ▪»\n"
    "<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n«bye▪»\n",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nBe<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    "Hi é<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n«Yo\n1▪»<|start_header_id|>user<|end_header_id|>\n\n"
    "ok<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n«bye▪»",
    "alpaca": "Be\n\n### Instruction:\nHi é\n\n### Response:\n« Yo\n1 ▪»\n\n### Instruction:\nok\n\n### Response:\n«bye▪»\n\n",
    "plain": "Be\nHi é\n« Yo\n1 ▪»\nok\n«bye▪»\n",
}
"""▪ stands for what ends an answer."""

END_OF_TURN = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>"}


def base_tokenizer(*, tokens: tuple[str, ...] = (), eos: str = "</s>", begins: bool = False) -> Any:
    """A base model's: no template, `<|im_start|>` and `<|im_end|>` as tokens only where asked for."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    rules = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    rules.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rules.decoder = decoders.ByteLevel()
    rules.add_special_tokens(["<s>", eos, *tokens])
    if begins:
        rules.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", len(alphabet))])
    return PreTrainedTokenizerFast(tokenizer_object=rules, bos_token="<s>", eos_token=eos)


def spans(tokenizer: Any, sample: Sample) -> tuple[str, list[str]]:
    on = np.diff((sample.weights > 0).astype(np.int8), prepend=0, append=0)
    edges = np.flatnonzero(on)
    runs = [tokenizer.decode(sample.tokens[1:][a:b]) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return tokenizer.decode(sample.tokens), runs


@pytest.mark.parametrize("name", RENDERED)
@pytest.mark.parametrize("tokens", [(), ("<|im_start|>", "<|im_end|>", "<|eot_id|>")], ids=["as text", "as tokens"])
def test_answers_end_with_what_generation_stops_at(name: str, tokens: tuple[str, ...]) -> None:
    tokenizer = base_tokenizer(tokens=tokens)
    size = len(tokenizer)
    choose_template(tokenizer, name, where="here")
    sample = Encoder(tokenizer, 1000).conversation(TALK)
    assert isinstance(sample, Sample)
    end = (END_OF_TURN.get(name, "") if tokens else "") + "</s>"
    expected = RENDERED[name].replace("▪", end)
    text, runs = spans(tokenizer, sample)
    assert text == expected.replace("«", "").replace("»", "")
    assert runs == [run.partition("»")[0] for run in expected.split("«")[1:]]
    assert (
        sample.tokens.tolist()
        == tokenizer.apply_chat_template([message.for_template() for message in TALK.messages], return_dict=True)[
            "input_ids"
        ]
    )
    assert sample.tokens[1:][sample.weights > 0][-1] == tokenizer.eos_token_id
    assert len(tokenizer) == size


@pytest.mark.parametrize("name", RENDERED)
def test_a_prompt_is_how_a_conversation_begins(name: str) -> None:
    tokenizer = base_tokenizer(begins=True)
    choose_template(tokenizer, name, where="here")
    messages = [message.for_template() for message in TALK.messages]
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    assert whole.startswith("<s>")
    assert whole.startswith(prompt + "bye</s>")


def test_an_end_of_turn_that_is_the_end_token_stands_once() -> None:
    tokenizer = base_tokenizer(eos="<|im_end|>")
    choose_template(tokenizer, "chatml", where="here")
    assert tokenizer.apply_chat_template([{"role": "assistant", "content": "a"}], tokenize=False).endswith(
        "\na<|im_end|>\n"
    )


def test_a_role_without_a_turn_is_refused() -> None:
    for name in ("alpaca", "plain"):
        tokenizer = base_tokenizer()
        choose_template(tokenizer, name, where="here")
        messages = (Message("user", "a"), Message("tool", "b"), Message("assistant", "c"))
        dropped = Encoder(tokenizer, 1000).conversation(Conversation(Source("f", 1), messages))
        assert isinstance(dropped, Dropped)
        assert dropped.detail == f"{name} has no turn for the role 'tool'"


def test_naming_a_template_is_for_models_without_one() -> None:
    assert template_names() == sorted(RENDERED)
    own = build_tokenizer()
    before = own.chat_template
    choose_template(own, None, where="here")
    assert own.chat_template == before
    with pytest.raises(UserError, match=r"(?s)here: .*of its own.*'chatml'.*leave out data\.template"):
        choose_template(own, "chatml", where="here")
    with pytest.raises(
        ModelError, match=r"(?s)here: .*no chat template.*alpaca, chatml, llama3, plain.*instruct.*jinja.*pretrain"
    ):
        choose_template(base_tokenizer(), None, where="here")
    with pytest.raises(UserError, match=r"(?s)data\.template: there is no template 'chatm'.*chatml"):
        choose_template(base_tokenizer(), "chatm", where="here")


def test_a_recipe_names_it_and_an_adapter_brings_it(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = shutil.copytree(tiny_path, tmp_path / "base")
    (base / "chat_template.jinja").unlink()
    train = tmp_path / "a.jsonl"
    train.write_text('{"instruction": "Hi", "output": "Yo"}\n')
    with pytest.raises(ModelError, match=r"data\.template to one of alpaca"):
        prepare_local(data_recipe(base, train, stage="sft"))
    with pytest.raises(UserError, match=r"of its own"):
        prepare_local(data_recipe(tiny_path, train, stage="sft", template="chatml"))
    with pytest.raises(UserError, match=r"plain documents"):
        load_tokenizer_of(data_recipe(base, train, template="plain"))
    kept = {
        prepare_local(data_recipe(base, train, stage="sft", sequence_length=200, template=name)).train
        for name in RENDERED
    }
    assert len(kept) == 4
    trained = load_tokenizer_of(data_recipe(base, train, stage="sft", template="alpaca"))
    trained.save_pretrained(tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    assert chat_template_of(tmp_path / "adapter") == trained.chat_template
    assert chat_template_of(base) is None
    assert Subject(str(base), str(tmp_path / "adapter")).load_tokenizer().chat_template == trained.chat_template
    monkeypatch.setattr("cairn.adapters.files.MAX_TEMPLATE_BYTES", 8)
    with pytest.raises(AdapterError, match="more than 8 bytes"):
        chat_template_of(tmp_path / "adapter")


def test_a_name_that_is_no_template_is_told_with_the_other_problems(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "model: {path: m}\ndata: {train: [a.jsonl], template: chatmll}\nstage: {name: sft}\n"
    )
    with pytest.raises(UserError, match=r"(?s)data\.template.*chatmll.*chatml"):
        load(tmp_path / "r.yaml")


def test_the_template_is_part_of_what_a_token_cache_is_kept_under() -> None:
    seen = set()
    for name in (None, *RENDERED):
        tokenizer = base_tokenizer()
        if name:
            choose_template(tokenizer, name, where="here")
        seen.add(tokenizer_identity(tokenizer))
    assert len(seen) == 5
