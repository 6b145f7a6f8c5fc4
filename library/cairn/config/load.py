"""From a YAML or JSON file and `key=value` overrides to a Recipe, or to the list of everything wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cairn.config import home
from cairn.config.checks import cross_checks
from cairn.config.choice import Choice
from cairn.config.explain import explain
from cairn.config.recipe import PLUGIN_LISTS, PLUGIN_SECTIONS, SECTIONS, Recipe, Training
from cairn.config.section import Section
from cairn.config.yaml import parse_yaml
from cairn.errors import Problem, RecipeError, UserError, did_you_mean
from cairn.plugins import FAMILIES, is_own_file

MISSING = "(missing)"
PIPELINE = "pipeline"
"""Where a recipe of several stages lists them (`cairn.config.pipeline`)."""


def load(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read the recipe at `path` (.yaml, .yml or .json), apply `key=value` overrides, check it.

    Raises UserError when the file cannot be read, RecipeError with all problems at once otherwise.
    """
    values = read(path)
    if PIPELINE in values:
        raise UserError(
            "a pipeline has several stages, one is wanted here",
            where=str(path),
            next_step="give a recipe of one stage; `cairn train` carries out pipelines",
        )
    problems = [problem for text in overrides for problem in apply_override(values, text)]
    return build(values, where=str(path), problems=problems)


def read(path: str | Path) -> dict[str, Any]:
    """The plain values of a recipe file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the recipe cannot be read ({error})", where=str(path), next_step="give the path of a YAML or JSON file"
        ) from None
    values = _parse_text(text, path)
    if not isinstance(values, dict):
        raise UserError(
            "a recipe is a mapping of sections", where=str(path), next_step=f"begin with {', '.join(SECTIONS)}"
        )
    return values


def _parse_text(text: str, path: Path) -> Any:
    if path.suffix != ".json":
        return parse_yaml(text, where=str(path))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"not valid JSON: {error.msg}", where=f"{path}:{error.lineno}", next_step="mend the syntax at that line"
        ) from None


def build(values: Mapping[str, Any], *, where: str = "recipe", problems: Sequence[Problem] = ()) -> Recipe:
    """A Recipe from plain values; raises RecipeError with `problems` and everything found here."""
    found = [*problems, *_unknown_sections(values)]
    parts: dict[str, Any] = {}
    values, lists = _apart(values)
    for name, section in SECTIONS.items():
        parsed = _parse_section(name, section, values.get(name, {}), found)
        parts[name] = _expanded(parsed) if parsed is not None else None
    if parts["training"] is not None:
        parts["training"] = parts["training"].model_copy(update=_parse_lists(lists, found))
    for name, (family, default) in PLUGIN_SECTIONS.items():
        parts[name] = parse_choice(name, family, default, values.get(name), found)
    found.extend(cross_checks(parts))
    if found:
        raise RecipeError(found, where=where)
    return Recipe.model_construct(**parts)


def apply_override(values: dict[str, Any], text: str) -> Iterator[Problem]:
    """Set one `dotted.key=value` (the value in YAML) in place; yields a Problem where that cannot be."""
    key, separator, raw = text.partition("=")
    keys = key.split(".")
    if not separator or not all(keys):
        yield Problem(text, text, "not of the form key=value", "write for example training.steps=20")
        return
    if keys[0] not in Recipe.model_fields:
        yield Problem(key, raw, f"there is no section '{keys[0]}'", did_you_mean(keys[0], Recipe.model_fields))
        return
    target = values
    for part in keys[:-1]:
        target = target.setdefault(part, {})
        if not isinstance(target, dict):
            yield Problem(key, raw, f"'{part}' is a value, not a section", "shorten the path")
            return
    target[keys[-1]] = parse_yaml(raw, where=text)


def with_overrides(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A copy of `recipe` with dotted keys set to new values, checked like a file."""
    values = recipe.plain()
    for key, value in changes.items():
        section, _, rest = key.partition(".")
        if rest == "name" and section in PLUGIN_SECTIONS and values[section]["name"] != value:
            values[section] = {"name": value}
    problems = [p for key, value in changes.items() for p in apply_override(values, f"{key}={json.dumps(value)}")]
    return build(values, where="overrides", problems=problems)


def _unknown_sections(values: Mapping[str, Any]) -> Iterator[Problem]:
    for name in values:
        if name not in Recipe.model_fields:
            yield Problem(name, values[name], "there is no such section", did_you_mean(name, Recipe.model_fields))


def _parse_section(name: str, section: type[Section], value: Any, problems: list[Problem]) -> Section | None:
    if value is None:
        value = {}
    if not isinstance(value, dict):
        problems.append(
            Problem(name, value, "a section is a mapping", f"give keys of {name}: {', '.join(section.model_fields)}")
        )
        return None
    try:
        return section.parse(value)
    except ValidationError as error:
        problems.extend(explain(error, section, prefix=name))
        return None


def _apart(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values without the lists of plugins in `training`, and those."""
    training = values.get("training")
    if not isinstance(training, dict):
        return dict(values), {}
    rest = {key: value for key, value in training.items() if key not in PLUGIN_LISTS}
    return {**values, "training": rest}, {key: training[key] for key in training if key in PLUGIN_LISTS}


def _parse_lists(lists: Mapping[str, Any], problems: list[Problem]) -> dict[str, tuple[Choice, ...]]:
    """The chosen plugins of each list; the default where there is none."""
    found = {}
    for key, family in PLUGIN_LISTS.items():
        values, path = lists.get(key, Training.model_fields[key].default), f"training.{key}"
        if not isinstance(values, list | tuple):
            problems.append(Problem(path, values, "a list of plugins is needed", f"write {key}: [{values}]"))
            values = ()
        choices = [parse_choice(f"{path}.{i}", family, None, value, problems) for i, value in enumerate(values)]
        found[key] = tuple(choice for choice in choices if choice is not None)
    return found


def parse_choice(path: str, family: str, default: str | None, value: Any, problems: list[Problem]) -> Choice | None:
    """What stands at `path`: a name of the family or a file of the user's own, alone or in a mapping with its keys."""
    plugins = FAMILIES[family]
    if isinstance(value, str):
        value = {"name": value}
    if value is not None and not isinstance(value, dict):
        problems.append(Problem(path, value, "a plugin section is a mapping with a name", f"write {path}: {{name: …}}"))
        return None
    options = dict(value or {})
    name = options.pop("name", default)
    if not is_own_file(name) and name not in plugins.names():
        kind = family.rpartition(".")[2].removesuffix("s")
        message = "a name is needed" if name is None else f"there is no {kind} of that name"
        problems.append(
            Problem(f"{path}.name", name or MISSING, message, did_you_mean(str(name or ""), plugins.names()))
        )
        return None
    try:
        source = _own_source(name, options)
        plugin = plugins.load(name, source)
    except UserError as error:
        problems.append(Problem(f"{path}.name", name, error.what, error.next_step))
        return None
    config = _parse_section(path, plugin.Config, options, problems)
    return Choice.model_construct(name=name, config=config, source=source) if config is not None else None


def _own_source(name: Any, options: dict[str, Any]) -> str | None:
    """The text of the user's file `name`: sent along in `source`, else read; None for a plugin by name."""
    if not is_own_file(name):
        return None
    if "source" in options:
        return str(options.pop("source"))
    try:
        return Path(home.expand(name)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the file cannot be read ({error})", next_step="give the path of a Python file") from None


def _expanded(section: Section) -> Section:
    """The section with `~` and `$CAIRN_HOME` expanded in its path-like strings."""
    changed: dict[str, Any] = {}
    for key in ("path", "train", "validation", "files", "catalog", "format"):
        value = getattr(section, key, None)
        if isinstance(value, str):
            changed[key] = home.expand(value)
        elif isinstance(value, tuple):
            changed[key] = tuple(home.expand(item) if isinstance(item, str) else _expanded(item) for item in value)
    return section.model_copy(update=changed)
