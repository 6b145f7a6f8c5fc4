"""What a dataset folder's own card says of its files: the `configs` in the front matter of its README.md.

The hub keeps several configurations in one folder (`main/` and `socratic/` of one set, a dump a language), so taking
every file that says `train` would train on some texts twice. The configuration asked for is taken, else the default
one; where none is marked so, or several splits could be meant, it is an error that shows the patterns to choose from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from cairn.data.sources.location import Location
from cairn.data.sources.splits import INSTEAD, split_of
from cairn.errors import DataError, did_you_mean

CARD = "README.md"
DEFAULT = "default"
"""A configuration of this name is the default one, as is one that says so."""
FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
MAX_CARD_BYTES = 1 << 24

Patterns = dict[str, list[str]]
"""Split → patterns of paths."""


def card_files(folder: Location, paths: Sequence[str], wanted: str, config: str | None = None) -> list[str] | None:
    """Those of `paths` (inside `folder`) that its card gives for the split of a configuration (none: the default one);
    None where it says nothing of files.

    Raises DataError where the card has no such configuration, no default one, or leaves the split open.
    """
    configs, default = _configs(folder)
    if not configs:
        return None
    name = _default(folder, configs, default) if config is None else _asked(folder, configs, config)
    patterns = configs[name]
    split = _split(folder, name, patterns, wanted)
    chosen = [re.compile(_regex(pattern)) for pattern in patterns[split]]
    found = [path for path in paths if any(pattern.fullmatch(path) for pattern in chosen)]
    if not found:
        raise DataError(
            f"its card names {', '.join(patterns[split])} for {split}, and no file of a known kind is there",
            where=str(folder),
            next_step="fetch the whole dataset, or name the files",
        )
    return found


def _configs(folder: Location) -> tuple[dict[str, Patterns], str | None]:
    """Configuration → its patterns by split, empty where the card lists none; and which is the default one."""
    location = folder.joined(CARD)
    with location.failures(), location.open() as stream:
        text = stream.read(MAX_CARD_BYTES).decode("utf-8", errors="replace")
    matter = FRONT_MATTER.match(text.replace("\r\n", "\n"))
    try:
        card = yaml.safe_load(matter[1]) if matter else None
    except yaml.YAMLError:
        return {}, None
    listed = card.get("configs") if isinstance(card, dict) else None
    entries = [entry for entry in listed or () if isinstance(entry, dict)] if isinstance(listed, list) else []
    found = {}
    default = None
    for entry in entries:
        name, patterns = str(entry.get("config_name", DEFAULT)), _patterns(entry)
        if patterns:
            found[name] = patterns
            default = name if entry.get("default") or (name == DEFAULT and default is None) else default
    return found, default


def _patterns(entry: dict[str, Any]) -> Patterns:
    """`data_files` as the hub allows it: a pattern, a list of them, or a list of {split, path}."""
    files = entry.get("data_files")
    base = str(entry.get("data_dir") or "").strip("./")
    found: Patterns = {}
    for part in files if isinstance(files, list) else [files]:
        if isinstance(part, str):
            found.setdefault("train", []).append(part)
        elif isinstance(part, dict) and "path" in part:
            several = part["path"] if isinstance(part["path"], list) else [part["path"]]
            found.setdefault(str(part.get("split", "train")), []).extend(map(str, several))
    return {split: [f"{base}/{path}" if base else path for path in several] for split, several in found.items()}


def _asked(folder: Location, configs: dict[str, Patterns], config: str) -> str:
    if config not in configs:
        raise DataError(
            f"its card has no configuration '{config}'", where=str(folder), next_step=did_you_mean(config, configs)
        )
    return config


def _default(folder: Location, configs: dict[str, Patterns], default: str | None) -> str:
    if default is None and len(configs) > 1:
        shown = "; ".join(f"{config}: {_shown(folder, patterns)}" for config, patterns in list(configs.items())[:5])
        raise DataError(
            f"it holds {len(configs)} configurations and its card marks none as the default: {', '.join(configs)}",
            where=str(folder),
            next_step=f"name the files of one. {shown}",
        )
    return default or next(iter(configs))


def _split(folder: Location, config: str, patterns: Patterns, wanted: str) -> str:
    for split in INSTEAD[wanted]:
        fitting = [split] if split in patterns else [name for name in patterns if split_of(name) == split]
        if len(fitting) > 1:
            raise DataError(
                f"its card has several splits for {split}: {', '.join(fitting)}",
                where=str(folder),
                next_step=f"name the files of those you mean: {_shown(folder, {k: patterns[k] for k in fitting})}",
            )
        if fitting:
            return fitting[0]
    raise DataError(
        f"configuration '{config}' has the splits {', '.join(patterns)}, none is for {wanted}",
        where=str(folder),
        next_step=f"name the files: {_shown(folder, patterns)}",
    )


def _shown(folder: Location, patterns: Patterns) -> str:
    return ", ".join(str(folder.joined(pattern)) for several in patterns.values() for pattern in several)


def _regex(pattern: str) -> str:
    """A glob as the hub means it: `*` stays within a folder, `**` does not; a folder stands for what is in it."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.removeprefix("./").rstrip("/"))
    return "".join(parts.get(piece, re.escape(piece)) for piece in pieces) + "(?:/.*)?"
