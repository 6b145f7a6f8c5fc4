"""Chat templates of several families, written by hand after the models' own, each with a conversation in which the
trained spans are marked by hand as «…»."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.tiny import CHATML, build_tokenizer

LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% elif m['role'] == 'assistant' %} {{ m['content'] }}{{ eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
PHI3 = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
ZEPHYR = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] + eos_token }}\n"
    "{% if loop.last and add_generation_prompt %}<|assistant|>{% endif %}{% endfor %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}{% set answer = m['content'].split('</think>')[-1].lstrip('\n') %}"
    "{% if loop.last %}<think>\n{% if '</think>' in m['content'] %}"
    "{{ m['content'].split('</think>')[0].split('<think>')[-1].strip() }}{% endif %}{{ '\n</think>\n\n' }}{% endif %}{{ answer }}"
    "{% else %}{{ m['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WITHOUT_PROMPT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
VICUNA = (
    "{% for m in messages %}{{ 'USER: ' if m['role'] == 'user' else 'ASSISTANT:' }}"
    "{% if m['role'] == 'user' %}{{ m['content'] }} {% else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
EOS_AT_THE_END = (
    "{% for m in messages %}{{ 'Human: ' if m['role'] == 'user' else 'Assistant: ' }}{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant: {% else %}{{ eos_token }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}<tool_call>{{ c['function'] | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """A template, the tokens that are whole in it, and its conversation with the trained spans marked."""

    name: str
    template: str
    marked: str
    specials: tuple[str, ...] = ()
    bos: str | None = None
    eos: str | None = None
    system: bool = False

    @property
    def messages(self) -> list[dict[str, str]]:
        """The same turns for every family; the first answer begins and ends with blanks."""
        turns = [("user", "Hi é"), ("assistant", self.first), ("user", "ok"), ("assistant", "bye")]
        return [{"role": role, "content": text} for role, text in ([("system", "Be")] if self.system else []) + turns]

    @property
    def first(self) -> str:
        """The first answer; the reasoning family has thoughts in it."""
        return "<think>hm</think>\nYo ✓" if self.name == "thinking" else "Yo ✓\n1 "

    def tokenizer(self) -> Any:
        """The byte tokenizer with this family's template and special tokens."""
        tokenizer = build_tokenizer(chat_template=self.template)
        named = {"bos_token": self.bos, "eos_token": self.eos}
        tokenizer.add_special_tokens({role: token for role, token in named.items() if token})
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", *self.specials]})
        return tokenizer


FAMILIES = (
    Family(
        "chatml",
        CHATML,
        "<|im_start|>system\nBe<|im_end|>\n<|im_start|>user\nHi é<|im_end|>\n<|im_start|>assistant\n«Yo ✓\n1 <|im_end|>»\n"
        "<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n«bye<|im_end|>»\n",
        system=True,
    ),
    Family(
        "llama3",
        LLAMA3,
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi é<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n«Yo ✓\n1<|eot_id|>»"
        "<|start_header_id|>user<|end_header_id|>\n\nok<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n«bye<|eot_id|>»",
        specials=("<|start_header_id|>", "<|end_header_id|>"),
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
        system=True,
    ),
    Family(
        "gemma",
        GEMMA,
        "<bos><start_of_turn>user\nHi é<end_of_turn>\n<start_of_turn>model\n«Yo ✓\n1<end_of_turn>»\n"
        "<start_of_turn>user\nok<end_of_turn>\n<start_of_turn>model\n«bye<end_of_turn>»\n",
        specials=("<start_of_turn>", "<end_of_turn>"),
        bos="<bos>",
        eos="<eos>",
    ),
    Family(
        "mistral",
        MISTRAL,
        "<s>[INST] Hi é [/INST]« Yo ✓\n1 </s>»[INST] ok [/INST]« bye</s>»",
        bos="<s>",
        eos="</s>",
    ),
    Family(
        "phi3",
        PHI3,
        "<|system|>\nBe<|end|>\n<|user|>\nHi é<|end|>\n<|assistant|>\n«Yo ✓\n1 <|end|>»\n"
        "<|user|>\nok<|end|>\n<|assistant|>\n«bye<|end|>»\n<|endoftext|>",
        specials=("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        eos="<|endoftext|>",
        system=True,
    ),
    Family(
        "zephyr",
        ZEPHYR,
        "<|system|>\nBe</s>\n<|user|>\nHi é</s>\n<|assistant|>«\nYo ✓\n1 </s>»\n<|user|>\nok</s>\n<|assistant|>«\nbye</s>»\n",
        eos="</s>",
        system=True,
    ),
    Family(
        "thinking",
        THINKING,
        "<|im_start|>user\nHi é<|im_end|>\n<|im_start|>assistant\n«Yo ✓<|im_end|>»\n"
        "<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\nbye<|im_end|>»\n",
    ),
    Family(
        "no generation prompt",
        WITHOUT_PROMPT,
        "<|im_start|>user\nHi é<|im_end|>\n<|im_start|>assistant\n«Yo ✓\n1 <|im_end|>»\n"
        "<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n«bye<|im_end|>»\n",
    ),
    Family(
        "vicuna",
        VICUNA,
        "USER: Hi é ASSISTANT:« Yo ✓\n1 </s>»USER: ok ASSISTANT:« bye</s>»",
        eos="</s>",
    ),
    Family(
        "end token once",
        EOS_AT_THE_END,
        "Human: Hi é\nAssistant: «Yo ✓\n1» \nHuman: ok\nAssistant: «bye\n</s>»",
        eos="</s>",
    ),
    Family(
        "generation marks",
        MARKED,
        "<|im_start|>user\nHi é<|im_end|>\n<|im_start|>assistant\n«Yo ✓\n1 <|im_end|>»\n"
        "<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n«bye<|im_end|>»\n",
    ),
)
