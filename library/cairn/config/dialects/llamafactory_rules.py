"""How LlamaFactory's keys that depend on others are taken over; the table is in `llamafactory`."""

from __future__ import annotations

from typing import Any

from cairn.config.dialects.trainer import names_of
from cairn.config.dialects.translation import Draft, Found, NoEqual, Rule, WrongValue, no_equal

LOSS_IS_STAGE = {"orpo": "orpo", "simpo": "simpo", "kto_pair": "kto"}
DPO_LOSSES = ("sigmoid", "hinge", "ipo")
SHUFFLE_BUFFER = 16384
ENDS = {"interleave_under": "first", "interleave_over": "all"}


def chosen(section: str, known: tuple[str, ...] = ()) -> Rule:
    """A key that decides a section's plugin."""

    def rule(draft: Draft, value: Any) -> Found:
        if known and value not in known:
            raise WrongValue(value, known)
        return draft.take(f"{section}.name", draft.name(section))

    return rule


def preference_loss(draft: Draft, value: Any) -> Found:
    """Three are stages of their own here, the others losses of DPO."""
    if value not in (*DPO_LOSSES, *LOSS_IS_STAGE):
        raise WrongValue(value, [*DPO_LOSSES, *LOSS_IS_STAGE])
    if draft.get("stage") != "dpo":
        return no_equal(f"has no effect with stage {draft.get('stage', 'sft')}")
    if value in LOSS_IS_STAGE:
        return draft.take("stage.name", draft.name("stage"), "a pair is two judgements" if value == "kto_pair" else "")
    return draft.take("stage.loss", value)


def switch(name: str) -> Rule:
    """A `use_…` key."""

    def rule(draft: Draft, value: Any) -> Found:
        if not value:
            return Found("default")
        if draft.name("optimizer").replace("_", "") != name.replace("_", ""):
            return no_equal(f"two optimizers are asked for; LlamaFactory takes {draft.name('optimizer')}")
        return draft.take("optimizer.name", draft.name("optimizer"))

    return rule


def loraplus_ratio(draft: Draft, value: Any) -> Found:
    """The switch of LoRA+ is also its knob."""
    found = switch("loraplus")(draft, value)
    return draft.take("optimizer.ratio", value, found.note) if found.status == "taken" else found


def datasets(target: str) -> Rule:
    """Names in a catalogue become entries that name the catalogue; without one they are names on the hub."""

    def rule(draft: Draft, value: Any) -> Found:
        names, folder = names_of(value), draft.get("dataset_dir", "data")
        if folder == "ONLINE":
            return draft.take(target, [f"hf://datasets/{name}" for name in names])
        if str(folder).startswith("REMOTE:"):
            raise NoEqual(f"download dataset_info.json and the data of {folder[7:]}, then set {target}")
        catalog = f"{str(folder).rstrip('/')}/dataset_info.json"
        weights = mixing_weights(draft, len(names)) if target == "data.train" else []
        if weights:
            entries = zip(names, weights, strict=True)
            return draft.take(target, [{"catalog": catalog, "name": name, "weight": share} for name, share in entries])
        return draft.take(target, [{"catalog": catalog, "name": names[0] if len(names) == 1 else names}])

    return rule


def mixing_weights(draft: Draft, count: int) -> list[float]:
    """Each dataset's share where they are interleaved; empty where every row is seen once."""
    if draft.get("mix_strategy", "concat") not in ENDS:
        return []
    given = [float(item) for item in names_of(draft.get("interleave_probs", []))]
    return given if len(given) == count else [1.0] * count


def mixing(draft: Draft, value: Any) -> Found:
    """Interleaving is a weight for each dataset, and an end: when the first was seen whole, or all were."""
    if value in ("concat", "interleave_once"):
        return Found("default")
    if value not in ENDS:
        raise WrongValue(value, ["concat", "interleave_once", *ENDS])
    return draft.take("data.epoch_ends", ENDS[value], "and a weight for each of data.train")


def probabilities(draft: Draft, value: Any) -> Found:
    """Weights of data.train."""
    if draft.get("mix_strategy", "concat") not in ENDS:
        return no_equal("has no effect without an interleaving mix_strategy")
    count = len(names_of(draft.get("dataset", [])))
    if len(names_of(value)) != count:
        raise WrongValue(value, [f"{count} numbers, one a dataset"])
    return Found("taken", "data.train", "as weights")


def buffer(draft: Draft, value: Any) -> Found:
    """Shuffles a stream; prepared data is shuffled over all of it."""
    if not draft.get("streaming"):
        return Found("default") if value == SHUFFLE_BUFFER else no_equal("has no effect without streaming")
    return draft.take("data.shuffle_rows", value, "rows rather than samples")


def dataset_folder(draft: Draft, value: Any) -> Found:
    """Part of every entry of data.train and data.validation."""
    if not draft.get("dataset") and not draft.get("eval_dataset"):
        return no_equal("no dataset is named")
    return Found("taken", "data.train", "names are the hub's" if value == "ONLINE" else "the folder of the catalogue")


def batch(draft: Draft, value: Any) -> Found:
    """Rows of a forward pass; with accumulation and workers they make the global batch."""
    return draft.take("training.micro_batch", value)


def accumulation(draft: Draft, value: Any) -> Found:
    """Rows of an optimizer step over all workers."""
    micro, workers = draft.get("per_device_train_batch_size", 8), draft.get("ray_num_workers", 1)
    note = f"{micro} × {value} × {workers} worker{'s' if workers != 1 else ''}"
    return draft.take("training.global_batch", micro * value * workers, note)


def packing(draft: Draft, value: Any) -> Found:
    """Always without attention across samples; where nothing is said, on in pretraining."""
    if draft.get("neat_packing"):
        return no_equal("neat_packing rules")
    if draft.get("packing") is None:
        wanted = draft.get("stage") == "pt"
        return draft.take("data.packing", wanted, "on in pretraining" if wanted else "")
    return draft.take("data.packing", bool(value), "samples in a row never see each other" if value else "")


def neat_packing(draft: Draft, value: Any) -> Found:
    """Implies packing."""
    return draft.take("data.packing", True) if value else Found("default")


def cutoff(draft: Draft, value: Any) -> Found:
    """Tokens of a row; a longer sample is cut there, so it is here; a longer document is windows in both."""
    if draft.get("stage") == "pt":
        return draft.take("data.sequence_length", value)
    draft.take("data.truncation", "keep_start")
    return draft.take("data.sequence_length", value, "and data.truncation: long samples are cut, not dropped")


def checkpointing(draft: Draft, value: Any) -> Found:
    """On unless disabled."""
    return draft.take("training.gradient_checkpointing", not value)


def adapters(draft: Draft, value: Any) -> Found:
    """What the run goes on from."""
    paths = names_of(value)
    note = "all but the last are merged into the base first" if len(paths) > 1 else ""
    return draft.take("model.adapter", paths[0] if len(paths) == 1 else paths, note)


def quantization(draft: Draft, value: Any) -> Found:
    """Bits and type in one word."""
    if value not in (4, 8):
        return no_equal("4 and 8 bits are on offer")
    return draft.take("model.quantization", "int8" if value == 8 else draft.get("quantization_type", "nf4"))


def quantization_type(draft: Draft, value: Any) -> Found:
    """Only 4 bits have two types."""
    if draft.get("quantization_bit") != 4:
        return no_equal("has no effect without quantization_bit 4")
    return draft.take("model.quantization", value)


def pissa_iterations(draft: Draft, value: Any) -> Found:
    """Part of the name of the initialisation."""
    if not draft.get("pissa_init"):
        return no_equal("has no effect without pissa_init")
    return draft.take("adapter.init", "pissa" if value == -1 else f"pissa_niter_{value}")


def sampling(draft: Draft, value: Any) -> Found:
    """Greedy is temperature 0."""
    return Found("default") if value else draft.take("generation.temperature", 0.0)


def temperature(draft: Draft, value: Any) -> Found:
    """Has a meaning only where answers are sampled."""
    return draft.take("generation.temperature", value if draft.get("do_sample", True) else 0.0)


def targets(value: Any) -> Any:
    """`all` or a list of layer names."""
    return "all-linear" if value == "all" else names_of(value)


def pure_bf16(draft: Draft, value: Any) -> Found:
    """Weights in bf16 is what bf16 means here."""
    return draft.take("training.precision", "bf16") if value else Found("default")


def only(section: str, *names: str) -> dict[str, tuple[str, ...]]:
    """The plugins with which a key means anything."""
    return {section: names}
