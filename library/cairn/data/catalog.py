"""LlamaFactory's `dataset_info.json`, read as it is: where a named dataset lies and what its rows look like.

What a row looks like is said as a known format with changes (`Format.load` takes such a mapping). A column or tag that
an entry does not name keeps its default: LlamaFactory forgets its defaults as soon as one column is named, so that
`columns: {prompt: question}` silently trains empty answers there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.errors import DataError, did_you_mean

HUB = "hf://datasets/"
FORMATTINGS = ("alpaca", "sharegpt", "openai")
ABSENT = "_none"
"""A name that no data has: for a path whose default name is another column's."""

COLUMNS: dict[str, dict[str, str]] = {
    "alpaca": {
        "prompt": "instruction", "query": "input", "response": "output", "history": "history", "system": "system",
        "chosen": "chosen", "rejected": "rejected", "kto_tag": "kto_tag",
    },
    "sharegpt": {
        "messages": "conversations", "system": "system", "chosen": "chosen", "rejected": "rejected",
        "kto_tag": "kto_tag",
    },
    "openai": {
        "messages": "messages", "chosen": "chosen", "rejected": "rejected", "kto_tag": "label",
    },
}  # fmt: skip
"""LlamaFactory's column → its path in our format of that shape, which is also its default."""
FIELD_TAGS = {
    "alpaca": {},
    "sharegpt": {"role_tag": "from", "content_tag": "value"},
    "openai": {"role_tag": "role", "content_tag": "content"},
}
ROLE_TAGS = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
    "observation_tag": "tool",
    "function_tag": "assistant",
}
USUAL_ROLES: dict[str, dict[str, str]] = {
    "alpaca": {},
    "sharegpt": {
        "user_tag": "human", "assistant_tag": "gpt", "system_tag": "system", "observation_tag": "observation",
        "function_tag": "function_call",
    },
    "openai": {
        "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system", "observation_tag": "tool",
        "function_tag": "function_call",
    },
}  # fmt: skip
KEYS = (
    "file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name", "formatting", "ranking",
    "subset", "split", "folder", "num_samples", "revision", "columns", "tags",
)  # fmt: skip
TOOLS = "tools"
"""A key of the layout itself, so that it need not be renamed: it is set."""
MEDIA = ("images", "videos", "audios")
REFUSED = {
    "ms_hub_url": "lies on ModelScope; only the Hugging Face hub is read",
    "om_hub_url": "lies on the Modelers hub; only the Hugging Face hub is read",
    "script_url": "is made by a script, and no code is run from a dataset",
    "cloud_file_name": "lies in a bucket by a name of LlamaFactory's own; give its s3:// or gs:// address as a path",
}


@dataclass(frozen=True)
class Entry:
    """One dataset of a catalogue. `path` is absolute or `hf://datasets/NAME[@REVISION]`; `limit` counts rows.

    `folder` is a folder in it; `subset` is a configuration of a dataset on the hub, of a local one a folder.
    """

    name: str
    path: str
    format: dict[str, Any]
    split: str = "train"
    subset: str | None = None
    folder: str | None = None
    limit: int | None = None

    @property
    def config(self) -> str | None:
        """The configuration in the hub's sense."""
        return self.subset if self.path.startswith(HUB) else None

    @property
    def place(self) -> str:
        """Where its files lie."""
        local_subset = None if self.path.startswith(HUB) else self.subset
        return "/".join(filter(None, (self.path, self.folder, local_subset)))


def entries(catalog: str | Path, names: str | Sequence[str], *, documents: bool = False) -> tuple[Entry, ...]:
    """The datasets `names` of the catalogue file (or of the folder that holds a dataset_info.json).

    `documents` reads an alpaca entry as LlamaFactory's pretraining does: the prompt column alone is the text. Raises
    DataError for an unknown name (with the nearest), for what is no text, and for what cannot be reached.
    """
    path = Path(catalog)
    path = path / "dataset_info.json" if path.is_dir() else path
    listed = _read(path)
    wanted = [names] if isinstance(names, str) else [*names]
    return tuple(_entry(listed, name, path, documents) for name in wanted)


def _read(path: Path) -> dict[str, Any]:
    advice = "give the path of a dataset_info.json"
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"the catalogue cannot be read ({error})", where=str(path), next_step=advice) from None
    except ValueError as error:
        raise DataError(f"the catalogue is not valid JSON: {error}", where=str(path), next_step="mend it") from None
    if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
        raise DataError("a catalogue is an object of datasets by name", where=str(path), next_step=advice)
    return listed


def _entry(listed: Mapping[str, Any], name: str, catalog: Path, documents: bool) -> Entry:
    place = f"{catalog}: {name}"
    if name not in listed:
        raise DataError(
            f"there is no dataset '{name}' in the catalogue", where=str(catalog), next_step=did_you_mean(name, listed)
        )
    entry = listed[name]
    _known(entry, KEYS, place)
    return Entry(
        name,
        _place(entry, catalog, place),
        text_format(entry, place) if documents and _formatting(entry, place) == "alpaca" else row_format(entry, place),
        split=entry.get("split") or "train",
        subset=entry.get("subset"),
        folder=entry.get("folder"),
        limit=entry.get("num_samples"),
    )


def _place(entry: Mapping[str, Any], catalog: Path, place: str) -> str:
    if entry.get("hf_hub_url"):
        revision = f"@{entry['revision']}" if entry.get("revision") else ""
        return f"{HUB}{entry['hf_hub_url']}{revision}"
    if entry.get("file_name"):
        return str((catalog.parent / entry["file_name"]).resolve())
    for key, reason in REFUSED.items():
        if entry.get(key):
            raise DataError(f"the dataset {reason}", where=place, next_step="download it and name its path")
    raise DataError("the entry does not say where the data is", where=place, next_step="add file_name or hf_hub_url")


def text_format(entry: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """The prompt column as a document's text."""
    column = _columns(entry, "alpaca", place).get("prompt", "instruction")
    return {"like": "text"} | ({} if column == "text" else {"rename": {"text": column}})


def row_format(entry: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """What `Format.load` takes: the format of that shape, with the names that differ from its own."""
    formatting = _formatting(entry, place)
    columns, tags = _columns(entry, formatting, place), entry.get("tags") or {}
    tools = columns.pop(TOOLS, None)
    _known(tags, (*FIELD_TAGS["openai"], *ROLE_TAGS), f"{place}: tags")
    usual = COLUMNS[formatting]
    rename = {usual[column]: name for column, name in columns.items() if usual[column] != name}
    rename |= {own: tags[tag] for tag, own in FIELD_TAGS[formatting].items() if tags.get(tag, own) != own}
    taken = set(columns.values())
    rename |= {path: ABSENT for column, path in usual.items() if column not in columns and path in taken}
    result: dict[str, Any] = {"like": _like(entry, formatting)}
    roles = _roles(tags, formatting, place)
    result |= ({"rename": rename} if rename else {}) | ({"roles": roles} if roles else {})
    return result | ({TOOLS: tools} if tools and (formatting == "alpaca" or tools != TOOLS) else {})


def _like(entry: Mapping[str, Any], formatting: str) -> str:
    if entry.get("ranking"):
        return "alpaca_preference" if formatting == "alpaca" else "sharegpt_preference"
    return f"{formatting}_feedback" if "kto_tag" in (entry.get("columns") or {}) else formatting


def _roles(tags: Mapping[str, Any], formatting: str, place: str) -> dict[str, str]:
    usual = USUAL_ROLES[formatting]
    if tags.get("function_tag", "function_call") != "function_call":
        raise DataError(
            f"function_tag '{tags['function_tag']}': calls are recognised by the role 'function_call'",
            where=place,
            next_step="rename that role in the data, or write a format of your own",
        )
    changed = {tag: name for tag, name in tags.items() if tag in usual and name != usual[tag]}
    return {name: ROLE_TAGS[tag] for tag, name in (usual | changed).items()} if changed else {}


def _formatting(entry: Mapping[str, Any], place: str) -> str:
    formatting = str(entry.get("formatting") or "alpaca")
    if formatting not in FORMATTINGS:
        raise DataError(
            f"there is no formatting '{formatting}'", where=place, next_step=did_you_mean(formatting, FORMATTINGS)
        )
    return formatting


def _columns(entry: Mapping[str, Any], formatting: str, place: str) -> dict[str, str]:
    columns = {column: name for column, name in (entry.get("columns") or {}).items() if name is not None}
    media = [column for column in MEDIA if column in columns]
    if media:
        raise DataError(
            f"the dataset holds {', '.join(media)}; text only here", where=place, next_step="choose a text dataset"
        )
    _known(columns, [*COLUMNS[formatting], TOOLS], f"{place}: columns of {formatting}")
    return columns


def _known(given: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any], place: str) -> None:
    for key in given:
        if key not in known:
            raise DataError(f"there is no key '{key}'", where=place, next_step=did_you_mean(key, known))
