"""Any method that PEFT implements on the layers of a model: from the recipe's words to PEFT's config, and back from a
saved one.

The file stem is PEFT's own name of the method in lower case. A method's file says its knobs and what it can; how it is
attached, saved and gone on from is the same for all and stands here. Adapters work in the base's own dtype.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from cairn.adapters.method import Method
from cairn.config.section import Section
from cairn.errors import AdapterError


class OnLinears(Section):
    """Where the adapters stand."""

    targets: Literal["auto", "all-linear", "attention", "mlp"] | tuple[str, ...] = Field(
        "auto", description="auto: all linears of attention and MLPs; or a list of layer names"
    )


class PeftMethod(Method):
    """A key's `serialization_alias` is PEFT's word for it; `fixed`: fields that PEFT is always told; `ignored`: those of a
    saved config that say how it was trained; `left_out`: fields that are not offered, and why."""

    Config: ClassVar[type[Section]] = OnLinears
    fixed: ClassVar[dict[str, Any]] = {}
    ignored: ClassVar[frozenset[str]] = frozenset()
    left_out: ClassVar[Mapping[str, str]] = {}
    peft_type: ClassVar[str] = ""
    """PEFT's name of it, where that is another's too."""
    variants: ClassVar[Mapping[str, str]] = {}
    """Fields of a saved config that make it one of another method's here."""

    def find(self, model: Any) -> list[str]:
        """Paths of the layers that the method stands on. Raises AdapterError when a target names no layer."""
        from cairn.models.linears import find_targets

        return find_targets(model, self.config.targets)

    def problems(self, model: Any) -> Iterator[str]:
        """Every target that names nothing, and what does not suit the layers that are there."""
        from cairn.models.linears import linear_shapes
        from cairn.models.unwrap import base_of

        refusals = dict.fromkeys(self._refusals(model))
        if refusals:
            yield from refusals
            return
        paths = self.find(model)
        other = {type(base_of(model).get_submodule(path)).__name__ for path in paths} & {"Conv1D"}
        if other - set(self.can.layers):
            yield f"the method stands on {', '.join(self.can.layers)}, this model's layers are Conv1D"
        shapes = linear_shapes(model)
        yield from self.misfits({path: shapes[path] for path in paths if path in shapes})

    def _refusals(self, model: Any) -> Iterator[str]:
        """What `find` would raise, of each target by itself."""
        targets = getattr(self.config, "targets", None)
        each = [(name,) for name in targets] if isinstance(targets, tuple) else [targets]
        for some in each:
            alone = self.config.model_copy(update={"targets": some}) if targets is not None else self.config
            try:
                type(self)(alone).find(model)
            except AdapterError as error:
                yield f"{error.what}: {error.next_step}"

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """What of the Config does not suit layers of `shapes` (path → (in, out))."""
        rank = getattr(self.config, "rank", None)
        for path, (inputs, outputs) in shapes.items():
            if rank is not None and rank > min(inputs, outputs):
                yield f"adapter.rank={rank} is above the smaller side of {path} ({inputs} → {outputs})"
                return

    def attach(self, model: Any) -> Any:
        """A PEFT model over `model` with only the method's parameters trainable, in the model's own dtype.

        Raises AdapterError when a target names no layer, and for a method that is refused.
        """
        if self.refused:
            raise AdapterError(
                f"the method '{self.name}' is refused: {self.refused}", where="adapter.name", next_step="choose another"
            )
        from cairn.models.linears import shortest_names

        return self.inject(model, shortest_names(model, self.find(model)))

    def inject(self, model: Any, names: list[str]) -> Any:
        """A PEFT model over `model` with fresh adapters on the layers called `names`."""
        from peft import get_peft_model

        return get_peft_model(model, self.peft_config(model, names), autocast_adapter_dtype=False)

    def inject_saved(self, model: Any, names: list[str], config: Mapping[str, Any]) -> Any:
        """The same for what was saved with PEFT's `config`, whose tensors are to be filled in."""
        return self.inject(model, names)

    def peft_config(self, model: Any, names: list[str]) -> Any:
        """PEFT's own config object."""
        from cairn.adapters.attach import task_type
        from cairn.adapters.files import is_transposed
        from cairn.models.linears import find_targets

        values = {"task_type": task_type(model), "target_modules": names, **self.fixed, **self.fields(model, names)}
        if "fan_in_fan_out" in self.defaults():
            values["fan_in_fan_out"] = is_transposed(model, find_targets(model, names))
        return peft_class(self.peft_type or self.name)(**values)

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """PEFT's fields that the Config sets."""
        return dict(self.config.model_dump(exclude={"targets"}, by_alias=True))

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Every field of PEFT's config with its default, or what is fixed here."""
        return dataclasses.asdict(peft_class(cls.peft_type or cls.name)(**cls.fixed)) | cls.fixed

    @classmethod
    def words(cls) -> dict[str, str]:
        """PEFT's field → the Config's key."""
        fields = {key: field for key, field in cls.Config.model_fields.items() if key != "targets"}
        return {field.serialization_alias or key: key for key, field in fields.items()}

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """The Config's values out of a saved PEFT config."""
        return {key: config[field] for field, key in cls.words().items() if field in config}

    def go_on(self, model: Any, folder: Path) -> Any:
        """The adapter in `folder` as it is, trainable; its own shape and targets hold, not the recipe's."""
        from cairn.adapters.reading import attach_other, read_other

        saved = read_other(folder)
        if saved.method.name != self.name:
            raise AdapterError(
                f"the adapter was made by the method '{saved.method.name}'",
                where=str(folder),
                next_step=f"set adapter.name={saved.method.name}",
            )
        return attach_other(model, saved, trainable=True)

    def save(self, model: Any, folder: Path) -> None:
        """A PEFT directory."""
        from cairn.adapters.files import save_peft

        save_peft(model, folder)


def peft_class(name: str) -> Any:
    """PEFT's config class of the method called `name` here."""
    from peft import PeftType
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    return PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(name.upper())]


def undivided(
    shapes: Mapping[str, tuple[int, int]], size: int, key: str, *, outputs_too: bool = False
) -> Iterator[str]:
    """The first layer whose inputs (or outputs) `size` does not divide."""
    for path, (inputs, outputs) in shapes.items():
        if inputs % size or (outputs_too and outputs % size):
            yield f"{key}={size} does not divide {path} ({inputs} → {outputs})"
            return
