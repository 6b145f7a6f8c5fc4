"""What a client may send, after OpenAI's reference. A field that would change the answer and is not supported here is
refused unless it has its neutral value; fields without effect on the answer are accepted and ignored.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cairn.errors import did_you_mean
from cairn.generation.request import MOST_ALTERNATIVES
from cairn.serving.refusal import RefusedError, bad_request

MOST_CHOICES = 128
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "best_of": (None, 1),
    "echo": (None, False),
    "suffix": (None, ""),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "parallel_tool_calls": (None, True, False),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "reasoning_effort": (None, "none"),
}
"""Field → values that mean "without it"."""
IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")

Body = TypeVar("Body", bound=BaseModel)


class Strict(BaseModel):
    """Unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid")


class StreamOptions(Strict):
    """What a stream carries besides text."""

    include_usage: bool = False
    include_obfuscation: bool = False


class SamplingBody(Strict):
    """What both endpoints share. Defaults are OpenAI's."""

    model: str
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int = Field(1, ge=1, le=16)
    stream: bool = False
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionBody(SamplingBody):
    """`POST /v1/completions`."""

    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: int | None = 16
    logprobs: int | None = Field(None, ge=0, le=MOST_ALTERNATIVES)

    @property
    def prompts(self) -> list[str | list[int]]:
        """One entry a prompt: text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)  # type: ignore[arg-type]


class TextPart(Strict):
    """A piece of a message; only text can be read here."""

    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    """One turn."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]
    name: str | None = None

    def for_template(self) -> dict[str, str]:
        """As a chat template expects it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        named = {"name": self.name} if self.name else {}
        return {"role": "system" if self.role == "developer" else self.role, "content": text, **named}


class ChatBody(SamplingBody):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=MOST_ALTERNATIVES)


class ScoreBody(Strict):
    """`POST /v1/score`: either the `messages` of one conversation, or several `conversations`."""

    model: str
    messages: list[ChatMessage] | None = None
    conversations: list[list[ChatMessage]] | None = Field(None, max_length=MOST_CHOICES)

    @property
    def asked(self) -> list[list[ChatMessage]]:
        """All of them; a RefusedError (400) where it is not one or the other."""
        if (self.messages is None) == (self.conversations is None):
            raise bad_request("give either messages or conversations", param="messages")
        return [self.messages] if self.messages is not None else list(self.conversations or ())


class LoadBody(Strict):
    """`POST /v1/load_lora_adapter`, after vLLM."""

    lora_name: str
    lora_path: str


class UnloadBody(Strict):
    """`POST /v1/unload_lora_adapter`."""

    lora_name: str


def parse_body(values: Any, kind: type[Body]) -> Body:
    """The body as `kind`; a RefusedError (400) that names every bad field."""
    if not isinstance(values, dict):
        raise bad_request("the body must be a JSON object")
    kept = {}
    for key, value in values.items():
        if key in NEUTRAL and key not in kind.model_fields:
            if value not in NEUTRAL[key]:
                raise bad_request(f"'{key}' is not supported here; leave it out", param=key)
        elif key not in IGNORED and not (value is None and key in kind.model_fields):
            kept[key] = value
    try:
        return kind.model_validate(kept)
    except ValidationError as error:
        raise _explained(error, kind) from None


def _explained(error: ValidationError, kind: type[BaseModel]) -> RefusedError:
    messages, first = [], None
    for found in error.errors(include_url=False):
        path = ".".join(str(part) for part in found["loc"])
        first = first or str(found["loc"][0] if found["loc"] else "")
        advice = f" ({did_you_mean(path, kind.model_fields)})" if found["type"] == "extra_forbidden" else ""
        what = "there is no such field" if found["type"] == "extra_forbidden" else found["msg"]
        messages.append(f"{path}: {what}{advice}")
    return bad_request("; ".join(messages), param=first)
