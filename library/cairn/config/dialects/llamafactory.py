"""LlamaFactory: one flat namespace over data, model, method and Hugging Face's trainer.

Names that depend on each other (a stage and its preference loss, the `use_…` switches of optimizers) are settled in
`plugins` as that program settles them: the first switch in its order wins. Its defaults are in `IMPLIED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cairn.config.dialects import llamafactory_left, trainer
from cairn.config.dialects.llamafactory_rules import (
    LOSS_IS_STAGE,
    accumulation,
    adapters,
    batch,
    buffer,
    checkpointing,
    chosen,
    cutoff,
    dataset_folder,
    datasets,
    loraplus_ratio,
    mixing,
    neat_packing,
    only,
    packing,
    pissa_iterations,
    preference_loss,
    probabilities,
    pure_bf16,
    quantization,
    quantization_type,
    sampling,
    switch,
    targets,
    temperature,
)
from cairn.config.dialects.trainer import names_of, number
from cairn.config.dialects.translation import Choice, Dialect, NoEqual, Rule, To, left_out

STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "dpo": "dpo", "kto": "kto", "ppo": "ppo"}
METHODS = ("lora", "full", "freeze", "oft")
SWITCHES = {
    "use_galore": "galore",
    "use_apollo": "apollo",
    "loraplus_lr_ratio": "loraplus",
    "use_badam": "badam",
    "use_adam_mini": "adam_mini",
    "use_muon": "muon",
}
"""In the order in which the first one wins."""
ATTENTION = {
    "auto": "auto",
    "disabled": "eager",
    "off": "eager",
    "sdpa": "sdpa",
    "fa2": "flash_attention_2",
    "fa3": NoEqual("flash_attention_2 is the newest on offer"),
}


def plugins(given: Mapping[str, Any]) -> dict[str, str]:
    """The plugin of each plugin section."""
    stage, loss = given.get("stage") or "sft", str(given.get("pref_loss"))
    optim = given.get("optim") or "adamw_torch"
    schedule = given.get("lr_scheduler_type") or "linear"
    return {
        "stage": LOSS_IS_STAGE.get(loss, "dpo") if stage == "dpo" else STAGES.get(stage, stage),
        "adapter": given.get("finetuning_type") or "lora",
        "optimizer": next(
            (name for switch, name in SWITCHES.items() if given.get(switch)), trainer.OPTIMIZERS.get(optim, optim)
        ),
        "schedule": trainer.SCHEDULES.get(schedule, schedule),
    }


LORA, OFT, FREEZE = only("adapter", "lora"), only("adapter", "oft"), only("adapter", "freeze")
DPO, KTO, PPO = only("stage", "dpo"), only("stage", "kto"), only("stage", "ppo")
GALORE, APOLLO, BADAM = only("optimizer", "galore"), only("optimizer", "apollo"), only("optimizer", "badam")
LORAPLUS = only("optimizer", "loraplus", "lora_plus")

KEYS: dict[str, Rule] = {
    # Model.
    "model_name_or_path": To("model.path"),
    "model_revision": To("model.revision", off="main"),
    "trust_remote_code": To("model.trust_remote_code", off=False),
    "flash_attn": To("model.attention", Choice(ATTENTION)),
    "adapter_name_or_path": adapters,
    "quantization_bit": quantization,
    "quantization_type": quantization_type,
    "double_quantization": To("model.double_quantization", off=True),
    "disable_gradient_checkpointing": checkpointing,
    # Stage.
    "stage": chosen("stage", tuple(STAGES)),
    "pref_loss": preference_loss,
    "pref_beta": To("stage.beta", where=only("stage", "dpo", "kto", "orpo", "simpo")),
    "pref_ftx": To("stage.sft_weight", off=0, where=only("stage", "dpo", "kto", "orpo", "simpo")),
    "pref_bco_weight": To("stage.bco_weight", off=0, where=DPO),
    "dpo_label_smoothing": To("stage.label_smoothing", off=0, where=DPO),
    "ld_alpha": To("stage.ld_alpha", where=DPO),
    "simpo_gamma": To("stage.gamma", where=only("stage", "simpo")),
    "kto_chosen_weight": To("stage.desirable_weight", where=KTO),
    "kto_rejected_weight": To("stage.undesirable_weight", where=KTO),
    "ref_model": To("stage.reference", where=only("stage", "dpo", "kto", "ppo")),
    "reward_model": To("stage.reward", where=PPO),
    "ppo_epochs": To("stage.epochs", where=PPO),
    "ppo_target": To("stage.kl_target", where=PPO),
    "ppo_score_norm": To("stage.normalize_scores", off=False, where=PPO),
    "ppo_whiten_rewards": To("stage.whiten_rewards", off=False, where=PPO),
    # Adapter.
    "finetuning_type": chosen("adapter", METHODS),
    "lora_rank": To("adapter.rank", where=LORA),
    "lora_alpha": To("adapter.alpha", where=LORA),
    "lora_dropout": To("adapter.dropout", where=LORA),
    "lora_target": To("adapter.targets", targets, where=only("adapter", "lora", "oft")),
    "additional_target": To("adapter.modules_to_save", names_of, where=only("adapter", "lora", "oft")),
    "use_rslora": To("adapter.use_rslora", off=False, where=LORA),
    "use_dora": To("adapter.use_dora", off=False, where=LORA),
    "pissa_init": To("adapter.init", lambda _: "pissa", off=False, where=LORA),
    "pissa_iter": pissa_iterations,
    "oft_rank": To("adapter.rank", off=0, where=OFT),
    "oft_block_size": To("adapter.block_size", where=OFT),
    "module_dropout": To("adapter.dropout", where=OFT),
    "freeze_trainable_layers": To("adapter.layers", where=FREEZE),
    "freeze_trainable_modules": To("adapter.modules", names_of, off="all", where=FREEZE),
    "freeze_extra_modules": To("adapter.extra_modules", names_of, where=FREEZE),
    # Optimizer and schedule.
    "optim": trainer.optimizer,
    **{key: switch(name) for key, name in SWITCHES.items()},
    "loraplus_lr_ratio": loraplus_ratio,
    "loraplus_lr_embedding": To("optimizer.embedding_learning_rate", number, where=LORAPLUS),
    "galore_target": To("optimizer.targets", targets, off="all", where=GALORE),
    "galore_rank": To("optimizer.rank", where=GALORE),
    "galore_update_interval": To("optimizer.update_every", where=GALORE),
    "galore_scale": To("optimizer.scale", where=GALORE),
    "galore_proj_type": To("optimizer.side", off="std", where=GALORE),
    "galore_layerwise": To("optimizer.layerwise", off=False, where=GALORE),
    "apollo_target": To("optimizer.targets", targets, off="all", where=APOLLO),
    "apollo_rank": To("optimizer.rank", where=APOLLO),
    "apollo_update_interval": To("optimizer.update_every", where=APOLLO),
    "apollo_scale": To("optimizer.scale", where=APOLLO),
    "apollo_proj": To("optimizer.projection", where=APOLLO),
    "apollo_proj_type": To("optimizer.side", off="std", where=APOLLO),
    "apollo_scale_type": To("optimizer.scale_by", where=APOLLO),
    "apollo_layerwise": To("optimizer.layerwise", off=False, where=APOLLO),
    "apollo_scale_front": To("optimizer.limit_first", off=False, where=APOLLO),
    "badam_mode": To("optimizer.mode", where=BADAM),
    "badam_start_block": To("optimizer.start_block", where=BADAM),
    "badam_switch_mode": To("optimizer.order", where=BADAM),
    "badam_switch_interval": To("optimizer.switch_every", where=BADAM),
    "badam_update_ratio": To("optimizer.update_ratio", where=BADAM),
    "badam_mask_mode": To("optimizer.mask", where=BADAM),
    "lr_scheduler_type": chosen("schedule"),
    "lr_scheduler_kwargs.min_lr": trainer.lowest_rate,
    "lr_scheduler_kwargs.lr_end": trainer.lowest_rate,
    "lr_scheduler_kwargs.min_lr_rate": To("schedule.floor"),
    "lr_scheduler_kwargs.num_cycles": trainer.cycles,
    "lr_scheduler_kwargs.power": To("schedule.power"),
    "lr_scheduler_kwargs.num_stable_steps": To("schedule.stable_steps"),
    "lr_scheduler_kwargs.num_decay_steps": To("schedule.decay_steps"),
    # Data.
    "dataset": datasets("data.train"),
    "eval_dataset": datasets("data.validation"),
    "dataset_dir": dataset_folder,
    "cutoff_len": cutoff,
    "packing": packing,
    "neat_packing": neat_packing,
    "max_samples": To("data.limit"),
    "mask_history": To("data.train_on", lambda _: "last", off=False),
    "mix_strategy": mixing,
    "interleave_probs": probabilities,
    "streaming": To("data.streaming", off=False),
    "buffer_size": buffer,
    "val_size": To("data.hold_out", off=0),
    # Trainer.
    "per_device_train_batch_size": batch,
    "gradient_accumulation_steps": accumulation,
    "num_train_epochs": trainer.epochs,
    "ray_run_name": trainer.run_name,
    "pure_bf16": pure_bf16,
    # Generation.
    "do_sample": sampling,
    "temperature": temperature,
    "top_p": To("generation.top_p"),
    "top_k": To("generation.top_k"),
    "max_new_tokens": To("generation.max_tokens"),
}
IMPLIED: dict[str, Any] = {
    "stage": "sft", "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all",
    "oft_block_size": 32, "freeze_trainable_layers": 2, "pref_loss": "sigmoid", "pref_beta": 0.1, "simpo_gamma": 0.5,
    "optim": "adamw_torch", "galore_rank": 16, "galore_update_interval": 200, "galore_scale": 2.0, "apollo_rank": 16,
    "apollo_update_interval": 200, "apollo_scale": 32.0, "badam_mode": "layer", "badam_switch_mode": "ascending",
    "badam_switch_interval": 50, "learning_rate": 5e-5, "lr_scheduler_type": "linear", "warmup_steps": 0,
    "cutoff_len": 2048, "packing": False, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
    "num_train_epochs": 3.0, "disable_gradient_checkpointing": False, "seed": 42,
}  # fmt: skip

DIALECT = Dialect(
    "LlamaFactory",
    {**trainer.RULES, **left_out(llamafactory_left.LEFT, llamafactory_left.DEFAULTS), **KEYS},
    IMPLIED,
    plugins,
)
