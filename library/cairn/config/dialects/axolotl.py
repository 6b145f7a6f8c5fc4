"""Axolotl: data as a list of sources with their types, LoRA and trainer keys, and `rl` for the preference methods.

A dataset's keys are translated together (`axolotl_data`), since a recipe's format is one for all its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cairn.config.dialects import axolotl_data, axolotl_left, trainer
from cairn.config.dialects.llamafactory_rules import only
from cairn.config.dialects.trainer import names_of, number
from cairn.config.dialects.translation import (
    Choice,
    Dialect,
    Draft,
    Found,
    NoEqual,
    Rule,
    To,
    WrongValue,
    left_out,
    no_equal,
)

STAGES = {"dpo": "dpo", "ipo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "simpo", "grpo": "grpo"}
PREFERENCES = ("dpo", "kto", "orpo", "simpo")
ADAPTERS = {"lora": "lora", "qlora": "lora"}
ATTENTION = {
    "flash_attention_2": "flash_attention_2",
    "sdpa": "sdpa",
    "eager": "eager",
    "flex_attention": NoEqual("isolated packing needs no flex attention"),
    "xformers": NoEqual("sdpa holds the same kernels"),
}


def plugins(given: Mapping[str, Any]) -> dict[str, str]:
    """The plugin of each plugin section."""
    rl, adapter = given.get("rl"), given.get("adapter")
    optimizer, schedule = given.get("optimizer") or "adamw_torch_fused", given.get("lr_scheduler") or "cosine"
    plain = "reward" if given.get("reward_model") else "pretrain" if axolotl_data.all_text(given) else "sft"
    whole = "freeze" if given.get("unfrozen_parameters") else "full"
    return {
        "stage": STAGES.get(rl, rl) if rl else plain,
        "adapter": ADAPTERS.get(adapter, adapter) if adapter else whole,
        "optimizer": "loraplus" if given.get("loraplus_lr_ratio") else trainer.OPTIMIZERS.get(optimizer, optimizer),
        "schedule": trainer.SCHEDULES.get(schedule, schedule),
    }


def method(draft: Draft, value: Any) -> Found:
    """`rl` names the stage; ipo is a loss of DPO here."""
    if value not in STAGES:
        raise WrongValue(value, [*STAGES])
    if value == "ipo":
        draft.take("stage.loss", "ipo")
    return draft.take("stage.name", draft.name("stage"), "and stage.loss ipo" if value == "ipo" else "")


def reward(draft: Draft, value: Any) -> Found:
    """A reward model is a stage."""
    return draft.take("stage.name", draft.name("stage")) if value else Found("default")


def adapter(draft: Draft, value: Any) -> Found:
    """qlora is LoRA on a base in 4 bits, which `load_in_4bit` says."""
    return draft.take("adapter.name", draft.name("adapter"))


def targets(draft: Draft, value: Any) -> Found:
    """All linears, or a list of names; a list wins."""
    if draft.name("adapter") == "full":
        return no_equal("has no effect with adapter full")
    if value is True:
        listed = draft.get("lora_target_modules")
        return no_equal("lora_target_modules rules") if listed else draft.take("adapter.targets", "all-linear")
    if value is False:
        return Found("default")
    return draft.take("adapter.targets", "all-linear" if value == "all-linear" else names_of(value))


def micro_batch(draft: Draft, value: Any) -> Found:
    """Rows of a forward pass of one worker."""
    return draft.take("training.micro_batch", value)


def accumulation(draft: Draft, value: Any) -> Found:
    """Rows of an optimizer step over all workers."""
    if draft.get("batch_size"):
        return no_equal("batch_size rules")
    micro, workers = draft.get("micro_batch_size", 1), draft.get("ray_num_workers", 1)
    note = f"{micro} × {value} × {workers} worker{'s' if workers != 1 else ''}"
    return draft.take("training.global_batch", micro * value * workers, note)


def quantized(kind: str) -> Rule:
    """A base in fewer bits."""

    def rule(draft: Draft, value: Any) -> Found:
        return draft.take("model.quantization", kind) if value else Found("default")

    return rule


def attention(kind: str) -> Rule:
    """One switch an implementation."""

    def rule(draft: Draft, value: Any) -> Found:
        return draft.take("model.attention", Choice(ATTENTION)(kind)) if value else Found("default")

    return rule


def tracker(name: str) -> Rule:
    """A tracker's own key asks for it, where it is not empty."""

    def rule(draft: Draft, value: Any) -> Found:
        return trainer.trackers(draft, [name]) if value else Found("default")

    return rule


def checkpointing(draft: Draft, value: Any) -> Found:
    """Recompute in the backward pass; where the activations wait is not a choice here."""
    note = f"'{value}' is plain recomputation here" if isinstance(value, str) else ""
    return draft.take("training.gradient_checkpointing", bool(value), note)


def precision(name: str) -> Rule:
    """Axolotl's further words for a dtype."""

    def rule(draft: Draft, value: Any) -> Found:
        return draft.take("training.precision", name) if value else Found("default")

    return rule


LORA = only("adapter", "lora")
LORAPLUS = only("optimizer", "loraplus", "lora_plus")
KEYS: dict[str, Rule] = {
    # Model.
    "base_model": To("model.path"),
    "revision_of_model": To("model.revision"),
    "trust_remote_code": To("model.trust_remote_code", off=False),
    "load_in_4bit": quantized("nf4"),
    "load_in_8bit": quantized("int8"),
    "attn_implementation": To("model.attention", Choice(ATTENTION)),
    "flash_attention": attention("flash_attention_2"),
    "sdp_attention": attention("sdpa"),
    "eager_attention": attention("eager"),
    "flex_attention": attention("flex_attention"),
    "xformers_attention": attention("xformers"),
    "lora_model_dir": To("model.adapter"),
    # Stage.
    "rl": method,
    "reward_model": reward,
    "rl_beta": To("stage.beta", where=only("stage", *PREFERENCES, "grpo")),
    "dpo_label_smoothing": To("stage.label_smoothing", off=0, where=only("stage", "dpo")),
    "orpo_alpha": To("stage.beta", where=only("stage", "orpo")),
    "rpo_alpha": To("stage.sft_weight", where=only("stage", "dpo")),
    "simpo_gamma": To("stage.gamma", where=only("stage", "simpo")),
    "cpo_alpha": To("stage.sft_weight", off=0, where=only("stage", "simpo")),
    "kto_desirable_weight": To("stage.desirable_weight", where=only("stage", "kto")),
    "kto_undesirable_weight": To("stage.undesirable_weight", where=only("stage", "kto")),
    "trl.beta": To("stage.beta"),
    "trl.num_generations": To("stage.group_size"),
    "trl.num_iterations": To("stage.epochs"),
    "trl.epsilon": To("stage.clip"),
    "trl.reward_funcs": To("stage.rewards"),
    "trl.reward_weights": To("stage.reward_weights"),
    "trl.scale_rewards": To("stage.scale_rewards", off=True),
    "trl.max_completion_length": To("generation.max_tokens"),
    "trl.temperature": To("generation.temperature"),
    "trl.top_p": To("generation.top_p"),
    "trl.top_k": To("generation.top_k"),
    # Adapter.
    "adapter": adapter,
    "lora_r": To("adapter.rank", where=LORA),
    "lora_alpha": To("adapter.alpha", where=LORA),
    "lora_dropout": To("adapter.dropout", where=LORA),
    "lora_target_linear": targets,
    "lora_target_modules": targets,
    "lora_modules_to_save": To("adapter.modules_to_save", names_of, where=LORA),
    "peft_use_rslora": To("adapter.use_rslora", off=False, where=LORA),
    "peft_use_dora": To("adapter.use_dora", off=False, where=LORA),
    "peft_init_lora_weights": To("adapter.init", off=True, where=LORA),
    "peft_layers_to_transform": To("adapter.layers", where=LORA),
    "unfrozen_parameters": To("adapter.modules", where=only("adapter", "freeze")),
    # Optimizer and schedule.
    "optimizer": trainer.optimizer,
    "loraplus_lr_ratio": To("optimizer.ratio", where=LORAPLUS),
    "loraplus_lr_embedding": To("optimizer.embedding_learning_rate", number, where=LORAPLUS),
    "lr_scheduler": lambda draft, _: draft.take("schedule.name", draft.name("schedule")),
    "cosine_min_lr_ratio": To("schedule.floor", where=only("schedule", "cosine")),
    "lr_scheduler_kwargs.num_cycles": trainer.cycles,
    "lr_scheduler_kwargs.min_lr_rate": To("schedule.floor"),
    # Data.
    **axolotl_data.KEYS,
    "sequence_len": To("data.sequence_length"),
    "sample_packing": To("data.packing"),
    "val_set_size": To("data.hold_out", off=0),
    "streaming": To("data.streaming", off=False),
    # Trainer.
    "micro_batch_size": micro_batch,
    "gradient_accumulation_steps": accumulation,
    "batch_size": To("training.global_batch"),
    "num_epochs": trainer.epochs,
    "gradient_checkpointing": checkpointing,
    "bfloat16": precision("bf16"),
    "float16": trainer.fp16,
    "float32": precision("fp32"),
    "use_wandb": tracker("wandb"),
    "wandb_project": tracker("wandb"),
    "wandb_name": trainer.run_name,
    "use_mlflow": tracker("mlflow"),
    "mlflow_tracking_uri": tracker("mlflow"),
    "use_tensorboard": tracker("tensorboard"),
}
IMPLIED: dict[str, Any] = {
    "adapter": None, "optimizer": "adamw_torch_fused", "lr_scheduler": "cosine", "sequence_len": 512,
    "sample_packing": False, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "num_epochs": 1.0, "seed": 42,
    "gradient_checkpointing": False, "bf16": "auto",
}  # fmt: skip

DIALECT = Dialect(
    "Axolotl",
    {**trainer.RULES, **left_out(axolotl_left.LEFT, axolotl_left.DEFAULTS), **KEYS},
    IMPLIED,
    plugins,
)
