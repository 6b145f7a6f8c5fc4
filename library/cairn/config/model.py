"""The section `model` of a recipe: which base, and how it is held in memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cairn.config.section import Section

Kind = Literal["nf4", "fp4", "int8"]


class Quantization(Section):
    """How the linears of a base are kept in few bits; of an adapter, those of the base that it was trained on."""

    kind: Kind = Field(description="4 bits as normal or plain floats in blocks of 64 weights, or 8 bits a row")
    double: bool = Field(True, description="with 4 bits: the scales in 8 bits too")
    compute: Literal["fp32", "bf16"] | None = Field(None, description="dtype of the products; none: the model's")
    keep: tuple[str, ...] = Field((), description="modules left alone beside the head")


class Model(Section):
    """The base model and how it is loaded."""

    path: str = Field(description="a directory, a hub name, or a GGUF file")
    revision: str | None = Field(None, description="branch, tag or commit of a hub model")
    adapter: str | None = Field(
        None, description="what training goes on from: an earlier result by name, name@version or folder"
    )
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = Field(
        "auto", description="attention implementation; auto lets transformers choose"
    )
    trust_remote_code: bool = Field(False, description="run Python code that ships with the model")
    quantization: Kind | None = Field(
        None, description="keep the base's linears in 4 bits (nf4, fp4) or 8 (int8) and train an adapter beside them"
    )
    double_quantization: bool = Field(True, description="with nf4 and fp4: keep the scales in 8 bits too")
    quantization_compute: Literal["fp32", "bf16"] | None = Field(
        None, description="dtype of the products with quantised weights; none: training.precision"
    )
    quantization_keep: tuple[str, ...] = Field((), description="modules that stay as they are, beside the head")

    @property
    def quantized(self) -> Quantization | None:
        """What `quantization` and its companions say, in one."""
        if self.quantization is None:
            return None
        return Quantization(
            kind=self.quantization,
            double=self.double_quantization,
            compute=self.quantization_compute,
            keep=self.quantization_keep,
        )
