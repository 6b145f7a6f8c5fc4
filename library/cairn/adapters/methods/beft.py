"""BEFT (arXiv 2509.15974): a bias is added to linears, by default of attention, and only it is trained. A base whose
linears have no bias has no place to fold it into."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import PeftMethod
from cairn.config.section import Section


class Beft(PeftMethod):
    """Trained biases."""

    can = Capabilities(merges=False, converts="no")

    class Config(Section):
        """Place."""

        targets: Literal["auto", "all-linear", "attention", "mlp"] | tuple[str, ...] = Field(
            "attention", description="a word for a group of linears; or a list of layer names"
        )
