"""What is scored: a base model, perhaps with an adapter, named so that every worker can open it for itself.

An adapter is a store reference (`name`, `name@3`, `name@alias`) or a folder: a PEFT directory, a whole model (what full
training leaves), a checkpoint, or a run. Frozen weights go through Cairn's fast linear.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cairn.config.model import Quantization
from cairn.errors import AdapterError, ModelError
from cairn.store.card import CARD_FILE, Base
from cairn.store.store import Store

PEFT_CONFIG, MODEL_CONFIG = "adapter_config.json", "config.json"
RUN_NOTE = "run.json"
"""What training leaves beside an adapter, as the card's source."""
INNER_FOLDERS = ("adapter", "model")
"""Where a run or a checkpoint keeps what `from_pretrained` opens."""


@dataclass(frozen=True)
class Subject:
    """`model`: directory, hub name or GGUF file. `adapter`: a folder as `locate_adapter` returns it, or None."""

    model: str
    adapter: str | None = None
    precision: str = "fp32"
    attention: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    quantization: Quantization | None = None

    @property
    def is_whole_model(self) -> bool:
        """Whether the adapter's folder holds a model of its own, which then stands in for the base."""
        return self.adapter is not None and not (Path(self.adapter) / PEFT_CONFIG).is_file()

    def load(self, device: Any = "cpu", *, head: Literal["language", "score"] = "language") -> Any:
        """The model in evaluation mode on `device`, its frozen linears prepacked where that pays.

        head: "score" for what the reward stage made. AdapterError and ModelError for a language model that is to score,
        and for a reward model that is to speak.
        """
        from cairn.models.kernels.frozen_linear import use_frozen_linears
        from cairn.models.load import load_model

        if head == "score":
            self._require_scores()
        path, revision = self._weights()
        model = load_model(
            path,
            precision=self.precision,
            attention=self.attention,
            revision=revision,
            trust_remote_code=self.trust_remote_code,
            device=device,
            head=head,
            quantization=self.quantization,
        )
        if self.adapter is not None and not self.is_whole_model:
            from cairn.adapters.attach import attach_saved

            model = attach_saved(model, Path(self.adapter))
        model.requires_grad_(False)
        use_frozen_linears(model, training=False)
        return model.eval()

    def load_tokenizer(self) -> Any:
        """The tokenizer of the base model, or of a whole model that brings one; the chat template of the adapter."""
        from cairn.adapters.files import chat_template_of
        from cairn.models.load import TOKENIZER_FILES, load_tokenizer

        path, revision = self._weights()
        if self.is_whole_model and not any((Path(path) / name).is_file() for name in TOKENIZER_FILES):
            path, revision = self.model, self.revision
        tokenizer = load_tokenizer(path, revision, trust_remote_code=self.trust_remote_code)
        template = chat_template_of(self.adapter) if self.adapter is not None else None
        if template is not None:
            tokenizer.chat_template = template
        return tokenizer

    def load_config(self) -> Any:
        """The transformers config, without weights."""
        from cairn.models.load import load_config

        path, revision = self._weights()
        return load_config(path, revision, trust_remote_code=self.trust_remote_code)

    def trained_on(self) -> str | None:
        """The hash of the base that the adapter says it was made for (`base_sha256`); None where it says nothing."""
        base = base_of_adapter(self.adapter)
        return (base.sha256 or None) if base is not None else None

    def _require_scores(self) -> None:
        """An adapter answers for itself (`attach_saved`); a model in full is known by its config."""
        from cairn.models.scores import is_scorer

        if (self.adapter is None or self.is_whole_model) and not is_scorer(self.load_config()):
            raise ModelError(
                "it speaks and gives no score",
                where=self._weights()[0],
                next_step="give a result of the stage 'reward'",
            )

    def _weights(self) -> tuple[str, str | None]:
        if self.adapter is not None and self.is_whole_model:
            return self.adapter, None
        return self.model, self.revision


def base_of_adapter(folder: str | Path | None) -> Base | None:
    """The base that the adapter in `folder` says it was trained on, and how that was quantised; None: it says nothing.

    Raises AdapterError for a note that cannot be read.
    """
    for name in (CARD_FILE, RUN_NOTE):
        note = Path(folder or "") / name
        if folder is not None and note.is_file():
            try:
                return Base.parse(json.loads(note.read_bytes())["base"])
            except (ValueError, KeyError, TypeError):
                raise AdapterError(
                    "the note of its origin cannot be read", where=str(note), next_step="publish or train it again"
                ) from None
    return None


def locate_adapter(reference: str, *, storage: str | Path) -> Path:
    """The folder of an adapter; a published name goes before a folder of the same name.

    `storage` is the storage path, whose `adapters/` is the store. Raises AdapterError where there is nothing to open.
    """
    store = Store(Path(storage) / "adapters")
    if reference.partition("@")[0] in store.names():
        return _weights_folder(store.resolve(reference).path)
    folder = Path(reference).expanduser().absolute()
    if folder.is_dir():
        return _weights_folder(folder)
    if os.sep in reference:
        raise AdapterError("there is no such folder", where=reference, next_step="give a folder or a published name")
    return store.resolve(reference).path


def _weights_folder(folder: Path) -> Path:
    for candidate in (folder, *(folder / name for name in INNER_FOLDERS)):
        if (candidate / PEFT_CONFIG).is_file() or (candidate / MODEL_CONFIG).is_file():
            return candidate
    raise AdapterError(
        "neither an adapter nor a model lies here",
        where=str(folder),
        next_step=f"give a folder with {PEFT_CONFIG} or {MODEL_CONFIG}, a checkpoint, or a run",
    )
