"""The card of a published version: what it was made from, how, what it measured, and a hash of every file.

`Facts` is what a publisher knows; the store adds name, version, time and files and gets a `Card`. It is written as
`card.json` beside the weights and never changes.
"""

from __future__ import annotations

import json
import math
import platform
from importlib import metadata
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from cairn.config.model import Quantization
from cairn.config.section import Section
from cairn.errors import AdapterError

CARD_FILE = "card.json"
RECORDED_LIBRARIES = ("cairn", "torch", "transformers", "peft", "deepspeed", "ray")


class Base(Section):
    """The model an adapter was made for."""

    path: str = Field(description="where it was loaded from")
    sha256: str = Field("", description="over its weights (`cairn.models.identity.base_sha256`)")
    quantization: Quantization | None = Field(None, description="how its linears were held while it was trained")


class Facts(Section):
    """What a publisher states. A metric that is not finite is kept as null."""

    base: Base
    method: str = Field(description="adapter method by plugin name; full for a whole model")
    stage: str = Field("", description="the stage that trained it")
    rank: int | None = Field(None, description="LoRA rank")
    targets: tuple[str, ...] = Field((), description="module paths or names that carry the adapter")
    tokenizer_sha256: str = Field("", description="`cairn.models.identity.tokenizer_sha256`")
    metrics: dict[str, float | None] = Field({}, description="final figures, unit in the name")
    run: str = Field("", description="run name")
    parent: str | None = Field(None, description="name@version that it went on from")
    parents: tuple[str, ...] = Field((), description="name@version of each that it was computed from")
    operation: str = Field("", description="how it was computed or where it was taken from, when no run trained it")
    libraries: dict[str, str] = Field(default_factory=lambda: library_versions())

    @field_validator("metrics")
    @classmethod
    def _finite(cls, metrics: dict[str, float | None]) -> dict[str, float | None]:
        """JSON has no not-a-number."""
        return {name: value if value is not None and math.isfinite(value) else None for name, value in metrics.items()}


class Card(Facts):
    """The facts of one version, as they lie in the store."""

    name: str
    version: int = Field(ge=1)
    created: str = Field(description="UTC, ISO 8601")
    files: dict[str, str] = Field(description="relative path → sha256, the card itself left out")

    @property
    def reference(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def is_whole_model(self) -> bool:
        """Whether the files are a model of its own rather than an adapter."""
        return "config.json" in self.files and "adapter_config.json" not in self.files

    def text(self) -> str:
        """The card as JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"


def read_card(folder: Path) -> Card:
    """The card in a version's folder; AdapterError when it is missing or not a card."""
    path = folder / CARD_FILE
    try:
        return Card.model_validate_json(path.read_bytes())
    except OSError as error:
        raise AdapterError(
            f"no readable card ({error.strerror})", where=str(path), next_step="publish the adapter again"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise AdapterError(
            f"not a card: {place}: {first['msg']}", where=str(path), next_step="publish the adapter again"
        ) from None


def library_versions() -> dict[str, str]:
    """Python and the installed versions of what shapes a result; imports none of them."""
    found = {"python": platform.python_version()}
    for name in RECORDED_LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
