"""A whole model directory with the adapter merged in: config, safetensors, tokenizer; any inference engine opens it.

The merge is checked in fp32 (invariant 7), then each weight is rounded once to `precision`, and what was written is
checked to be that. An adapter that was trained beside a quantised base is merged into the dequantised one; what that
costs in bits per byte is measured and written to `merge_cost.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.adapters.attach import attach_saved
from cairn.config.section import Section
from cairn.errors import AdapterError
from cairn.exports._merge_cost import describe_merge_cost, write_merge_cost
from cairn.exports._reload import fresh_target, probe, require_equal
from cairn.exports.base import Export
from cairn.models.load import DTYPES, load_model, load_tokenizer
from cairn.store.opening import load_base, require_adapter_files
from cairn.store.store import Adapter

TOKENIZER_FILE = "tokenizer_config.json"


class Safetensors(Export):
    """One model of base and adapter."""

    class Config(Section):
        """How the merged weights are written."""

        precision: Literal["fp32", "bf16"] = Field("fp32", description="dtype of the written weights")
        text: str | None = Field(
            None, description="Pile-format file to measure a merge into a quantised base on; none: a built-in text"
        )

    config: Config

    def export(self, adapter: Adapter, target: Path) -> Path:
        """Merge, compare logits, write, reload, compare logits again (1e-4).

        Raises AdapterError for an adapter that cannot be merged, UserError when `target` holds something.
        """
        with fresh_target(target) as draft:
            dtype = DTYPES[self.config.precision]
            model = _merged(adapter, target)
            for parameter in model.parameters():
                parameter.data = parameter.data.to(dtype).float()
            expected = probe(model)
            model.to(dtype).save_pretrained(draft)
            tokenizer = _tokenizer_of(adapter)
            tokenizer.save_pretrained(draft)
            require_equal(expected, probe(load_model(draft, precision="fp32")), where=target)
            if adapter.card.base.quantization is not None and not adapter.card.is_whole_model:
                write_merge_cost(adapter, draft, tokenizer, self.config.text)
        return target

    def remarks(self, target: Path) -> list[str]:
        """What merging cost, where it was measured."""
        return describe_merge_cost(target)


def _merged(adapter: Adapter, target: Path) -> Any:
    """The whole model in fp32; its logits are those of base + adapter."""
    if adapter.card.is_whole_model:
        return load_model(adapter.path, precision="fp32")
    require_adapter_files(adapter)
    adapted = attach_saved(load_base(adapter), adapter.path)
    expected = probe(adapted)
    try:
        model = adapted.merge_and_unload(safe_merge=True)
    except NotImplementedError as error:
        raise AdapterError(
            f"the adapter cannot be merged: {error}", next_step="give it to PEFT: cairn export --to peft"
        ) from error
    require_equal(expected, probe(model), where=target)
    return model


def _tokenizer_of(adapter: Adapter) -> Any:
    """The one it was trained with, published beside the weights, else the base model's."""
    published = TOKENIZER_FILE in adapter.card.files
    return load_tokenizer(adapter.path if published else adapter.card.base.path)
