"""What an adapter method is: its knobs, what it can, and how it makes parameters of a base model trainable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cairn.adapters.train_hook import TrainHook
from cairn.errors import AdapterError
from cairn.plugins import Plugin

if TYPE_CHECKING:
    from cairn.adapters.linear_change import LinearChange
    from cairn.adapters.preview import Preview


@dataclass(frozen=True)
class Capabilities:
    """What a method claims; the contract test (`cairn adapters methods --prove NAME`) holds it to each.

    `layers`: the classes it stands on. `quantised`: bases of bitsandbytes. `merges`: folds into the base's weights.
    `converts`: its update of a linear becomes a LoRA, "exact" at the rank that it has, or "approximate". `mixed`: rows
    of one batch with different adapters in PEFT itself. `zero_stage`: the highest it trains at. `checkpointing`: whether
    activations may be computed again in the backward pass.
    """

    layers: tuple[str, ...] = ("Linear",)
    quantised: bool = False
    merges: bool = True
    converts: Literal["no", "approximate", "exact"] = "approximate"
    zero_stage: int = 3
    checkpointing: bool = True


class Method(Plugin):
    """`attach` returns the model to train; afterwards exactly the method's parameters require a gradient."""

    can: ClassVar[Capabilities] = Capabilities()
    refused: ClassVar[str] = ""
    """Why the pinned libraries get it wrong, with the number of the issue; such a method is not trained."""
    saved_as: ClassVar[str] = ""
    """The method of what `save` writes, where it is another."""
    makes_whole_model: ClassVar[bool] = False
    """Whether the result is a model of its own instead of an adapter beside its base."""
    starts_as_base: ClassVar[bool] = True
    """Whether the model answers as its base before the first step."""

    @property
    def changes_base(self) -> bool:
        """Whether its beginning is taken out of the base's weights, which must be floats then."""
        return False

    @property
    def virtual_tokens(self) -> int:
        """How many positions it puts before every sample."""
        return 0

    @property
    def off_is_start(self) -> bool:
        """Whether the model with its adapter switched off is the model before the first step."""
        return self.starts_as_base

    def problems(self, model: Any) -> Iterator[str]:
        """Everything in the recipe's section that does not fit `model`, which may lie on the meta device."""
        yield from ()

    def attach(self, model: Any) -> Any:
        """The trainable model over `model` (a PEFT model, or the model itself for full training)."""
        raise NotImplementedError

    @property
    def first_rows(self) -> int:
        """How many of the run's first rows `begin` looks at."""
        return 0

    @property
    def first_documents(self) -> tuple[str, ...]:
        """Files of documents whose first rows these are, where not the run's."""
        return ()

    def begin(self, model: Any, preview: Preview) -> Any:
        """As `attach`, of a method that begins in the run's first rows."""
        return self.attach(model)

    def begin_again(self, model: Any, folder: Path) -> Any:
        """What `begin` gave at the run's start, bit for bit, out of what `save` wrote into `folder` since."""
        return self.attach(model)

    def train_hook(self, model: Any, total_steps: int) -> TrainHook | None:
        """What the method does beside descending the gradient, in a run of so many steps over what `attach` gave."""
        return None

    def go_on(self, model: Any, folder: Path) -> Any:
        """The trainable model over `model` with what `save` wrote into `folder`."""
        raise AdapterError(
            f"the method '{self.name}' cannot go on from an adapter",
            where=str(folder),
            next_step="set adapter.name to the method that trained it",
        )

    def change_of(self, layer: Any) -> LinearChange | None:
        """What the adapter in PEFT's `layer` (fp64, over a plain linear) does; None: as its answers tell."""
        return None

    def save(self, model: Any, folder: Any) -> None:
        """Write what `load` elsewhere needs into `folder`: a PEFT directory, or a whole model directory."""
        raise NotImplementedError
