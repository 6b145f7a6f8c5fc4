"""The chat templates that the trl package installs: our tokens are the template's, exactly the answers are trained.

What is trained is checked against probe texts and a table of turn ends written by hand, not against the encoder's own
reading. A template that is refused for a case stands in REFUSED with the reason; nothing may be silently wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import build_tokenizer

from cairn.data.drops import Dropped
from cairn.data.encoding import Encoder
from cairn.data.rows import Sample
from cairn.records import Conversation, Message, Source

pytestmark = pytest.mark.slow

HERE = Source("f.jsonl", 1)
SPEC = find_spec("trl")
FOLDER = Path(next(iter(SPEC.submodule_search_locations or ()))) / "chat_templates" if SPEC else Path()
NAMES = sorted(path.stem for path in FOLDER.glob("*.jinja"))
MARKED = [name for name in NAMES if re.search(r"\{%-?\s*generation", (FOLDER / f"{name}.jinja").read_text())]

SPECIAL = re.compile(
    r"<\|[^|<>\s]+\|>|<｜[^｜<>]+｜>|<\|[a-zA-Z_]+>|<[a-z_]+\|>|\[gMASK\]|<sop>"
    r"|<(?:start_of_turn|end_of_turn|end_of_utterance)>"
)
"""What is one token in the models that these templates are for."""

ASKS = ("first-question", "second-question")
SAYS = ("first-answer", "second-answer", "before-the-call")
THOUGHTS = ("first-thought", "second-thought")
OTHERS = ("the-system", "the-result", "the-description", "the-parameter", *ASKS)

CALL = {"type": "function", "function": {"name": "add_up", "arguments": {"x": 17}}}
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer", "description": OTHERS[3]}}, "required": ["x"]}
TOOL = {"type": "function", "function": {"name": "add_up", "description": OTHERS[2], "parameters": SCHEMA}}
RESULT = Message("tool", OTHERS[1], fields={"name": "add_up"})


def exchange(i: int, **fields: str) -> tuple[Message, Message]:
    return Message("user", ASKS[i]), Message("assistant", SAYS[i], fields=fields)


def inline(i: int) -> tuple[Message, Message]:
    thinking = f"<think>\n{THOUGHTS[i]}\n</think>\n\n{SAYS[i]}"
    return Message("user", ASKS[i]), Message("assistant", thinking)


def calling(content: str) -> tuple[Message, ...]:
    call = Message("assistant", content, fields={"tool_calls": [CALL]})
    return Message("user", ASKS[0]), call, RESULT, Message("assistant", SAYS[0])


CASES: dict[str, Conversation] = {
    "turns": Conversation(HERE, (*exchange(0), *exchange(1))),
    "system": Conversation(HERE, (Message("system", OTHERS[0]), *exchange(0), *exchange(1))),
    "call": Conversation(HERE, calling(""), tools=(TOOL,)),
    "call in turns": Conversation(HERE, (*calling(""), *exchange(1)), tools=(TOOL,)),
    "call and text": Conversation(HERE, (*calling(SAYS[2]), *exchange(1)), tools=(TOOL,)),
    "thoughts": Conversation(
        HERE, tuple(chain.from_iterable(exchange(i, reasoning_content=THOUGHTS[i]) for i in (0, 1)))
    ),
    "thoughts in the text": Conversation(HERE, (*inline(0), *inline(1))),
}

ENDS: dict[str, tuple[str, ...]] = {
    "cohere": ("<|END_OF_TURN_TOKEN|>",),
    "deepseek": ("<｜end▁of▁sentence｜>",),
    "diffusion_gemma": ("<turn|>", "<|tool_response>", "<tool_call|>"),
    "gemma4": ("<turn|>", "<|tool_response>"),
    "gemma": ("<end_of_turn>",),
    "glm4moe": ("<|user|>", "<|observation|>"),
    "gptoss": ("<|end|>", "<|return|>", "<|call|>"),
    "lfm2": ("<|im_end|>",),
    "llama3": ("<|eot_id|>",),
    "muse": ("<|eot|>", "<|eom|>"),
    "nemotron": ("<|im_end|>",),
    "phi3": ("<|end|>", "<|end|>\n<|eos|>"),
    "qwen": ("<|im_end|>",),
}
"""By the longest beginning of a template's name: what closes an assistant's turn."""

WITHOUT_END = ("glm4moe",)
"""Its turns end where the next role's token stands, so nothing closes the last one."""

LEADS = {
    "cohere2": ("", "<|START_RESPONSE|>"),
    "deepseek": ("", "<｜Assistant｜>"),
    "glm4moe": ("\n<think></think>\n",),
    "gptoss": ("<|channel|>final<|message|>", "<|start|>assistant<|channel|>final<|message|>"),
    "muse": (" to=user<|message|>", "<|start|>assistant to=user<|message|>"),
    "nemotron": ("</think>", "<think></think>"),
    "qwen2_5_training": ("\n",),
    "qwen3_5": ("", "<think>\n\n</think>\n\n", "\n</think>\n\n"),
    "qwen3_6": ("", "<think>\n\n</think>\n\n", "\n</think>\n\n"),
    "qwen3_8": ("\n</think>\n\n", "<think>\n\n</think>\n\n"),
    "qwen3_instruct": ("",),
    "qwen3_vl": ("",),
    "qwen3": ("", "<think>\n\n</think>\n\n"),
}
"""What may be trained before the text of an answer: words of the template that a model says after its prompt."""

ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."
CALLS = ("call", "call in turns", "call and text")
PLAIN = ("turns", "system", "thoughts", "thoughts in the text")
REFUSED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (ALTERNATE, CALLS, "cohere cohere_training cohere2 cohere2_training gemma gemma_training gemma3 gemma3_training"),
    ("the function add_up", CALLS, "deepseek_r1_distill deepseek_r1_distill_training llama3 llama3_training"),
    ("the function add_up", CALLS, "phi3 phi3_training phi3_5 phi3_5_training qwen2_5_vl qwen2_5_vl_training"),
    ("the function add_up", CALLS[2:], "idefics3 idefics3_training smolvlm smolvlm_training"),
    ('can only concatenate str (not "dict") to str', CALLS, "deepseekv3"),
    ("System role not supported", ("system",), "gemma gemma_training"),
    ("an answer is not followed by the template's end of turn", CALLS[2:], "diffusion_gemma"),
    ("the template marks 4 answers, the conversation has 3", CALLS[2:], "diffusion_gemma_training"),
    ("what follows an answer cannot be told from it", CALLS[2:], "gemma4 gemma4_v3 gemma4_v4"),
    ("the prompt before message 3 is no prefix of the whole conversation", CALLS[2:], "gemma4_v5 gptoss"),
    ("the template does not show an answer's text", CALLS[2:], "llama3_1 llama3_2 muse_glimmer"),
    ("what the template marks as generated does not show an answer's text", CALLS[2:], "gptoss_training"),
    ("what the template marks as generated does not show an answer's text", CALLS[2:], "muse_glimmer_training"),
    ("the template does not show the call of add_up", CALLS, "lfm2"),
    ("what the template marks as generated does not show the call of add_up", CALLS, "lfm2_training"),
    ("the template does not show an assistant's text", PLAIN, "idefics3 smolvlm"),
    (
        "what the template marks as generated does not show an answer's text",
        PLAIN,
        "idefics3_training smolvlm_training",
    ),
    ("str object has no element 0", CALLS[:2], "idefics3 idefics3_training smolvlm smolvlm_training"),
    ("str object has no element 0", CALLS[:2], "llava_next llava_next_training"),
    ("'str object' has no attribute 'text'", (*PLAIN, CALLS[2]), "llava_next llava_next_training"),
)
"""(reason, cases, templates). Those of vision models want content as parts; Gemma 4 goes on in one turn after a call."""
REASONS = {(name, case): detail for detail, cases, names in REFUSED for case in cases for name in names.split()}

BETWEEN = {
    "\n",
    "\n<|eos|>",
    "<think>",
    "<think>\n",
    "<think>\n\n</think>\n\n",
    "<|tool_response>",
    "<|start|>assistant",
}
BETWEEN |= {"<｜Assistant｜>", "<｜Assistant｜><think>\n", "<｜tool▁outputs▁end｜>"}
"""All that marks and found spans differ by: words of the template at the borders of an answer."""


@cache
def tokenizer_for(template: str) -> Any:
    """The byte tokenizer with a template and the tokens that are whole in it."""
    tokenizer = build_tokenizer(chat_template=template)
    tokenizer.add_special_tokens({"eos_token": "<|eos|>", "bos_token": "<|bos|>"})
    tokenizer.add_special_tokens({"additional_special_tokens": sorted(set(SPECIAL.findall(template)))})
    return tokenizer


def template(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def encode(text: str, case: str) -> Sample | Dropped:
    return encoder_for(text).conversation(CASES[case])


@cache
def encoder_for(text: str) -> Encoder:
    return Encoder(tokenizer_for(text), 1_000_000)


def said(case: str) -> list[dict[str, Any]]:
    return [message.for_template() for message in CASES[case].messages]


def runs(tokenizer: Any, tokens: np.ndarray, on: np.ndarray) -> list[str]:
    """The text of every run of tokens where `on`."""
    edges = np.flatnonzero(np.diff(on.astype(np.int8), prepend=0, append=0))
    return [tokenizer.decode(tokens[a:b]) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def entry(table: dict[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """What the table says of the longest beginning of `name` that is in it."""
    known = [key for key in table if name.startswith(key)]
    return table[max(known, key=len)] if known else ("",)


def wanted(message: Message) -> Iterator[str]:
    """The words that a run of an answer must hold."""
    yield from (word for word in SAYS if word in message.content)
    yield from (part for call in message.fields.get("tool_calls", ()) for part in (call["function"]["name"], "17"))


def test_the_templates_are_installed() -> None:
    assert len(NAMES) > 60
    assert len(MARKED) > 30
    assert {name for name, _ in REASONS} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_the_templates_and_exactly_the_answers_are_trained(name: str) -> None:
    for case in CASES:
        sample = encode(template(name), case)
        detail = sample.detail if isinstance(sample, Dropped) else None
        assert detail == REASONS.get((name, case)), case
        if isinstance(sample, Sample):
            check(name, case, sample)


def check(name: str, case: str, sample: Sample) -> None:
    tokenizer, conversation = tokenizer_for(template(name)), CASES[case]
    reference = tokenizer.apply_chat_template(said(case), tools=list(conversation.tools) or None, return_dict=True)
    assert sample.tokens.tolist() == reference["input_ids"]
    trained = runs(tokenizer, sample.tokens[1:], sample.weights > 0)
    answers = [message for message in conversation.messages if message.role == "assistant"]
    assert len(trained) == len(answers)
    assert all(word in run for run, message in zip(trained, answers, strict=True) for word in wanted(message))
    assert not [word for word in OTHERS if word in "".join(trained)]
    whole = tokenizer.decode(sample.tokens)
    assert all(whole.count(word) == "".join(trained).count(word) for word in (*SAYS, *THOUGHTS))
    if name not in WITHOUT_END:
        assert all(run.rstrip().endswith(entry(ENDS, name)) for run in trained)
    if case in ("turns", "system"):
        assert {run.partition(word)[0] for run, word in zip(trained, SAYS, strict=False)} <= set(entry(LEADS, name))


@pytest.mark.parametrize("name", MARKED)
def test_marks_are_what_transformers_sees_and_agree_with_what_is_found(name: str) -> None:
    marked = template(name)
    bare = re.sub(r"\{%(-?)\s*generation\s*(-?)%\}", r"{%\1 if true \2%}", marked)
    bare = re.sub(r"\{%(-?)\s*endgeneration\s*(-?)%\}", r"{%\1 endif \2%}", bare)
    compared = 0
    for case in CASES:
        sample, found = encode(marked, case), encode(bare, case)
        if isinstance(sample, Dropped):
            continue
        tokenizer = tokenizer_for(marked)
        mask = tokenizer.apply_chat_template(
            said(case), tools=list(CASES[case].tools) or None, return_dict=True, return_assistant_tokens_mask=True
        )["assistant_masks"]
        assert (sample.weights > 0).tolist() == [bool(on) for on in mask[1:]]
        if isinstance(found, Dropped):
            assert (name, found.detail[:10]) == ("qwen3_5_nothink_training", "the prompt")
            continue
        assert sample.tokens.tolist() == found.tokens.tolist()
        differing = (sample.weights > 0) != (found.weights > 0)
        assert set(runs(tokenizer, sample.tokens[1:], differing)) <= BETWEEN
        compared += 1
    assert compared or (name, "turns") in REASONS
