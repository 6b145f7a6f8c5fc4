"""Axolotl's `datasets`: where they lie, and what their types and field names are in the words of `data.format`.

Types that no format is known for, and those of preference data, are left to detection, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cairn.config.dialects.translation import Draft, Found, Rule, no_equal

DATA_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".gz", ".zst", ".xz")
LISTS = {"datasets": "data.train", "test_datasets": "data.validation", "pretraining_dataset": "data.train"}
TEXT_TYPES = ("completion", "pretrain")
FORMATS = {
    "alpaca": "alpaca", "gpteacher": "alpaca", "sharegpt": "sharegpt", "chat_template": "openai", "completion": "text",
    "pretrain": "text",
}  # fmt: skip
"""Type → format, for stages that learn from answers or text; what is not listed is left to detection."""
PATHS = {
    "field": "text", "text_column": "text", "field_messages": "messages", "message_field_role": "role",
    "message_field_content": "content", "field_tools": "tools", "message_field_training": "weight",
    "field_instruction": "instruction", "field_input": "input", "field_output": "output", "field_system": "system",
}  # fmt: skip
"""Axolotl's name of a field → the path that it has in the format."""
SHAREGPT_PATHS = {"messages": "conversations", "role": "from", "content": "value"}
AUTO = "the format is detected from the rows"


def all_text(given: Mapping[str, Any]) -> bool:
    """Whether everything that is trained on is plain text."""
    listed = given.get("datasets") or []
    types = [kind_of(entry, "") for entry in listed if isinstance(entry, Mapping)]
    return bool(given.get("pretraining_dataset")) or (bool(types) and all(kind in TEXT_TYPES for kind in types))


def kind_of(entry: Mapping[str, Any], usual: str) -> str:
    """The type up to its first dot: `chat_template.default` is a chat_template."""
    kind = entry.get("type")
    return "" if isinstance(kind, Mapping) else str(kind or usual).partition(".")[0]


def place(draft: Draft, entry: Mapping[str, Any]) -> list[str]:
    """The files or hub names of one dataset."""
    path, files = str(entry.get("path") or ""), entry.get("data_files") or []
    files = [files] if isinstance(files, str) else files
    local = (
        path.startswith(("/", "./", "../", "~")) or path.endswith(DATA_SUFFIXES) or (draft.path.parent / path).exists()
    )
    if "://" in path or local or path.count("/") > 1:
        return [f"{path.rstrip('/')}/{file}" for file in files] or [path]
    if path in ("json", "csv", "parquet", "text", "arrow") and files:
        return [*files]
    revision = f"@{entry['revision']}" if entry.get("revision") else ""
    return [f"hf://datasets/{path}{revision}/{file}" for file in files] or [f"hf://datasets/{path}{revision}"]


def places(name: str) -> Rule:
    """All datasets of a list, each with its format; every key that says where or what writes the same."""

    def rule(draft: Draft, value: Any) -> Found:
        target = LISTS[name]
        found: list[Any] = []
        for entry in draft.get(name):
            known = format_of(draft, entry)
            found += [item if known is None else {"path": item, "format": known} for item in place(draft, entry)]
        return draft.take(target, found)

    return rule


def single(target: str) -> Rule:
    """A list in which only a name is given."""

    def rule(draft: Draft, value: Any) -> Found:
        names = [value] if isinstance(value, str) else value
        return draft.take(target, [item for name in names for item in place(draft, {"path": name})])

    return rule


def format_of(draft: Draft, entry: Mapping[str, Any]) -> str | dict[str, Any] | None:
    """A dataset's format, as a name or as a known one with changes; None where it is left to detection."""
    own = isinstance(entry.get("type"), Mapping)
    known = "alpaca" if own else FORMATS.get(kind_of(entry, "pretrain" if draft.get("pretraining_dataset") else ""))
    if known is None or draft.name("stage") not in ("sft", "pretrain"):
        return None
    names = dict(_renames(entry, known))
    roles = {source: role for role, listed in (entry.get("roles") or {}).items() for source in listed}
    roles = {source: role for source, role in roles.items() if source != role}
    if not names and not roles:
        return known
    return {"like": known} | ({"rename": names} if names else {}) | ({"roles": roles} if roles else {})


def _renames(entry: Mapping[str, Any], known: str) -> Iterator[tuple[str, str]]:
    inner = entry.get("type")
    properties = entry.get("message_property_mappings") or {}
    given = {**entry, **(inner if isinstance(inner, Mapping) else {})}
    fields = [(PATHS[key], name) for key, name in given.items() if key in PATHS and name]
    fields += [(key, name) for key, name in properties.items() if key in ("role", "content")]
    for path, name in fields:
        own = SHAREGPT_PATHS.get(path, path) if known == "sharegpt" else path
        if own != name:
            yield own, name


def named(name: str) -> Rule:
    """A key that says the format: part of the entry, or left to detection."""

    def rule(draft: Draft, value: Any) -> Found:
        entries = draft.get(name)
        if all(format_of(draft, entry) is None for entry in entries):
            return no_equal(AUTO)
        return Found("taken", LISTS[name], "as its format")

    return rule


def with_path(name: str) -> Rule:
    """Part of the place."""
    return lambda draft, value: Found("taken", LISTS[name], "as its path")


def split(draft: Draft, value: Any) -> Found:
    """A hub dataset is read as its train split."""
    return Found("default") if value == "train" else no_equal("name the files of that split in data.train")


def _left(reason: str) -> Rule:
    return lambda draft, value: no_equal(reason) if value else Found("default")


FIELDS = (
    "field", "text_column", "field_messages", "message_field_role", "message_field_content",
    "message_property_mappings", "roles", "field_tools", "message_field_training",
)  # fmt: skip
TYPE_FIELDS = ("field_instruction", "field_input", "field_output", "field_system")
PREFERENCE_FIELDS = ("field_chosen", "field_rejected", "field_prompt", "field_completion", "field_label")
LEFT = {
    "the model's own chat template is used": "chat_template chat_template_jinja conversation eot_tokens",
    "the model's own chat template frames the text": "format no_input_format prompt_format chosen_format"
    " rejected_format completion_format system_format system_prompt",
    "files are known by their names": "ds_type",
    "the hub's default configuration is read; name the files of another": "name",
    "every file is read whole; data.limit reads less": "shards shards_idx preprocess_shards skip",
    "what the assistant says is trained, to its end of turn; a weight in the message says otherwise": (
        "roles_to_train train_on_eos message_field_training_detail drop_system_message"
    ),
    "the model's own chat template keeps or strips it": "field_thinking template_thinking_key split_thinking",
    "no code is run from a dataset": "trust_remote_code input_transform",
    "not offered": "input_format field_human field_model logprobs_field temperature step_separator"
    " max_completion_length train_on_last_step_only length sequence_length min_input_id max_input_id seed",
}
FORMAT_KEYS = ("type", *FIELDS, *(f"type.{key}" for key in TYPE_FIELDS))
PREFERENCE_KEYS = (*PREFERENCE_FIELDS, *(f"type.{key}" for key in PREFERENCE_FIELDS))
KEYS: dict[str, Rule] = {
    **{f"{name}.*.{prefix}{key}": _left(reason) for name in LISTS for prefix in ("", "type.")
       for reason, keys in LEFT.items() for key in keys.split()},
    **{f"{name}.*.{key}": named(name) for name in LISTS for key in (*FORMAT_KEYS, *PREFERENCE_KEYS)},
    **{f"{name}.*.{key}": with_path(name) for name in LISTS for key in ("data_files", "revision")},
    **{f"{name}.*.split": split for name in LISTS},
    **{f"{name}.*.path": places(name) for name in LISTS},
    **{name: single(target) for name, target in LISTS.items()},
}  # fmt: skip
