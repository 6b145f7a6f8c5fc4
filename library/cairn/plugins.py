"""One mechanism for growth: a file is a choice.

`Plugins("cairn.optimizers", "cairn.optimizers.base:Optimizer")` knows the file stems of a package by
listing its folder, imports one on demand, and returns its single subclass of the base. Nothing is registered:
each process discovers the package afresh, so a Ray worker sees what the driver saw. The stem `base` and
stems that begin with an underscore are not choices.

Out-of-tree plugins come by the entry-point group `cairn.plugins`: an entry point named
`optimizers.sophia = my_package.sophia` adds the name `sophia` to the package `cairn.optimizers`.

A recipe may also name a file of the user's own, `./sophia.py`. Its text travels with the recipe, so that the file need
be on no other machine, and counts in the recipe's fingerprint.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import linecache
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from cairn.config.section import Section
from cairn.errors import UserError, did_you_mean

ENTRY_POINT_GROUP = "cairn.plugins"
RESERVED_STEM = "base"


class Plugin:
    """What every plugin base descends from: a Config (its knobs) and a name (its file stem)."""

    Config: ClassVar[type[Section]] = Section
    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """A plugin is called as its file is."""
        super().__init_subclass__()
        cls.name = cls.__module__.rpartition(".")[2]

    def __init__(self, config: Any = None) -> None:
        self.config: Any = config if config is not None else self.Config()


@dataclass(frozen=True)
class Plugins:
    """The choices of one package. `base` is "module:Class", imported only when a choice is loaded."""

    package: str
    base: str

    def names(self) -> list[str]:
        """All names on offer, sorted; imports no plugin."""
        return sorted(self._modules())

    def load(self, name: str, source: str | None = None) -> type[Any]:
        """The plugin class called `name`, or the one in the user's file `name` whose text is `source`.

        An unknown name is a UserError with the nearest match, and so is a file that does not hold one plugin.
        """
        if source is not None:
            try:
                return self._single_subclass(own_module(name, source), Path(name).stem)
            except TypeError as error:
                raise UserError(str(error), where=name, next_step=f"derive one class from {self.base}") from None
        modules = self._modules()
        if name not in modules:
            raise UserError(f"there is no '{name}' in {self.package}", next_step=did_you_mean(name, modules))
        return self._single_subclass(importlib.import_module(modules[name]), name)

    def make(self, choice: Any) -> Any:
        """The plugin that a recipe chose (`cairn.config.recipe.Choice`), with its Config."""
        return self.load(choice.name, choice.source)(choice.config)

    def _modules(self) -> dict[str, str]:
        return {**dict(self._in_tree()), **dict(self._out_of_tree())}

    def _in_tree(self) -> Iterator[tuple[str, str]]:
        spec = importlib.util.find_spec(self.package)
        assert spec is not None, self.package
        for module in pkgutil.iter_modules(spec.submodule_search_locations):
            if module.name != RESERVED_STEM and not module.name.startswith("_"):
                yield module.name, f"{self.package}.{module.name}"

    def _out_of_tree(self) -> Iterator[tuple[str, str]]:
        prefix = self.package.removeprefix("cairn.") + "."
        for point in _entry_points(importlib.metadata.entry_points):
            if point.name.startswith(prefix):
                yield point.name.removeprefix(prefix), point.value

    def _single_subclass(self, module: Any, name: str) -> type[Any]:
        base_module, _, base_name = self.base.partition(":")
        base = getattr(importlib.import_module(base_module), base_name)
        found = [
            member
            for _, member in inspect.getmembers(module, inspect.isclass)
            if issubclass(member, base) and member is not base and member.__module__ == module.__name__
        ]
        if len(found) != 1:
            raise TypeError(f"{module.__name__} must define exactly one {base_name}, it defines {len(found)}")
        plugin: Any = found[0]
        plugin.name = name
        return plugin


def is_own_file(name: Any) -> bool:
    """Whether a recipe means a file of the user's own rather than a choice by name."""
    return str(name).endswith(".py")


@functools.cache
def own_module(path: str, source: str) -> ModuleType:
    """The user's file as a module, executed once a process; UserError where that fails."""
    module = ModuleType(f"{Path(path).stem}_{hashlib.sha256(source.encode()).hexdigest()[:12]}")
    module.__file__ = path
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)  # for its tracebacks
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[module.__name__]
        raise UserError(
            f"the file cannot be run ({type(error).__name__}: {error})", where=path, next_step="mend it there"
        ) from error
    return module


@functools.cache
def _entry_points(find: Callable[..., Any]) -> tuple[Any, ...]:
    """Those of this process's installed packages: looking through them takes 20 ms, a recipe asks a dozen times."""
    return tuple(find(group=ENTRY_POINT_GROUP))


STAGES = Plugins("cairn.stages", "cairn.stages.base:Stage")
METHODS = Plugins("cairn.adapters.methods", "cairn.adapters.method:Method")
OPTIMIZERS = Plugins("cairn.optimizers", "cairn.optimizers.base:Optimizer")
SCHEDULES = Plugins("cairn.schedules", "cairn.schedules.base:Schedule")
CALLBACKS = Plugins("cairn.training.callbacks", "cairn.training.callback:Callback")
TRACKERS = Plugins("cairn.training.trackers", "cairn.training.tracker:Tracker")
EXPORTS = Plugins("cairn.exports", "cairn.exports.base:Export")
FILTERS = Plugins("cairn.data.filters", "cairn.data.filters.base:Filter")

FAMILIES = {
    plugins.package.removeprefix("cairn."): plugins
    for plugins in (STAGES, METHODS, OPTIMIZERS, SCHEDULES, CALLBACKS, TRACKERS, EXPORTS, FILTERS)
}
