"""A chat template by name, for a base model whose tokenizer brings none.

A tokenizer keeps its vocabulary: a marker that it has no token for (`<|im_start|>`) is tokenised as ordinary text. Every
answer ends with the tokenizer's end-of-sequence token, since that is what generation stops at: after the template's own
end of turn where that is one token too, in its place where it is not (it would be shown as text of the answer). A
conversation begins with the beginning-of-sequence token where the tokenizer puts one before a text of its own accord.
What is decided so is written at the head of the template, so what is saved with an adapter needs nothing else.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from cairn.errors import ModelError, UserError, did_you_mean

TURN_END = re.compile(r"\{%- set turn_end = '([^']+)' -%\}")
"""How a file says what ends a turn in it; `begin` and `answer_end` are set before."""

SUFFIX = ".jinja"


def template_names() -> list[str]:
    """The files of `data/templates`, sorted."""
    files = resources.files("cairn.data.templates").iterdir()
    return sorted(file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))


def choose_template(tokenizer: Any, name: str | None, *, where: str) -> None:
    """Give the tokenizer of the model `where` the template `name` if it has none.

    Raises ModelError where neither is there, UserError where both are, or there is none of that name.
    """
    if tokenizer.chat_template:
        if name is not None:
            raise UserError(
                f"the model has a chat template of its own, and data.template names another ('{name}')",
                where=where,
                next_step="leave out data.template: a model is trained and served with its own",
            )
        return
    names = template_names()
    if name is None:
        raise ModelError(
            "the model's tokenizer has no chat template",
            where=where,
            next_step=f"set data.template to one of {', '.join(names)}, use the instruct variant of the model, "
            "put a chat_template.jinja beside the tokenizer, or train on plain documents with the stage pretrain",
        )
    if name not in names:
        raise UserError(f"there is no template '{name}'", where="data.template", next_step=did_you_mean(name, names))
    file = resources.files("cairn.data.templates") / f"{name}{SUFFIX}"
    tokenizer.chat_template = _fitted(file.read_text(encoding="utf-8"), tokenizer)


def _fitted(template: str, tokenizer: Any) -> str:
    found = TURN_END.search(template)
    marker = found[1] if found else ""
    is_token = bool(marker) and len(tokenizer(marker, add_special_tokens=False)["input_ids"]) == 1
    ends = ([f"'{marker}'"] if is_token else []) + ([] if is_token and marker == tokenizer.eos_token else ["eos_token"])
    first = tokenizer("a")["input_ids"][0]
    begin = "bos_token" if tokenizer.bos_token_id is not None and first == tokenizer.bos_token_id else "''"
    return f"{{%- set begin = {begin} -%}}\n{{%- set answer_end = {' + '.join(ends)} -%}}\n{template}"
