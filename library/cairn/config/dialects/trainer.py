"""Keys of Hugging Face's trainer, which both dialects take over: how long, how fast, how precise, what is logged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cairn.config.dialects.translation import Choice, Draft, Found, NoEqual, Rule, To, left_out, no_equal
from cairn.errors import UserError
from cairn.plugins import TRACKERS

PLANNED_TRACKERS = ("tensorboard", "wandb", "mlflow")
OPTIMIZERS = {
    "adamw_hf": "adamw", "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_apex_fused": "adamw",
    "adamw_bnb_8bit": "adamw_8bit", "paged_adamw_32bit": "paged_adamw", "lion_32bit": "lion",
    "paged_lion_32bit": "paged_lion", "galore_adamw": "galore", "galore_adamw_8bit": "galore_8bit",
    "apollo_adamw": "apollo", "galore_adafactor": "galore",
}  # fmt: skip
"""What is not listed keeps its name."""
SCHEDULES = {
    "constant_with_warmup": "constant",
    "cosine_with_restarts": "cosine",
    "cosine_with_min_lr": "cosine",
    "cosine_warmup_with_min_lr": "cosine",
    "reduce_lr_on_plateau": "plateau",
}
HALF = "trained in bf16, which needs no loss scaling; fp16 is not offered"


def number(value: Any) -> Any:
    """A number that was written as a text: `"1e-4"`."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def names_of(value: Any) -> list[str]:
    """`a, b` or a list of names as a list."""
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else list(value)


def epochs(draft: Draft, value: Any) -> Found:
    """Passes over the rows, unless steps are given."""
    if draft.get("max_steps", -1) > 0:
        return no_equal("max_steps rules")
    return draft.take("training.epochs", float(number(value)))


def steps(draft: Draft, value: Any) -> Found:
    """A positive number of steps; -1 means by epochs."""
    return draft.take("training.steps", int(value)) if value > 0 else Found("default")


def optimizer(draft: Draft, value: Any) -> Found:
    """The name is settled already; said here is only whether this key decided it."""
    if draft.name("optimizer").replace("_", "") != OPTIMIZERS.get(value, value).replace("_", ""):
        return no_equal(f"{draft.name('optimizer')} is asked for by another key and wins")
    return draft.take("optimizer.name", draft.name("optimizer"))


def betas(draft: Draft, _: Any) -> Found:
    """Both decays as one pair."""
    pair = [draft.get("adam_beta1", 0.9), draft.get("adam_beta2", 0.999)]
    return draft.take("optimizer.betas", pair)


def warmup_steps(draft: Draft, value: Any) -> Found:
    """Steps; below 1 a fraction, as newer versions of the trainer have it."""
    value = number(value)
    if draft.given.get("lr_scheduler_type") == "constant":
        return draft.take("schedule.warmup_steps", 0, "constant does not warm up")
    if value == 0 and draft.get("warmup_ratio"):
        return no_equal("warmup_ratio rules")
    fraction = 0 < value < 1
    return draft.take(f"schedule.warmup_{'fraction' if fraction else 'steps'}", value if fraction else int(value))


def warmup_ratio(draft: Draft, value: Any) -> Found:
    """A share of all steps, unless steps are given."""
    if draft.get("warmup_steps", 0):
        return no_equal("warmup_steps rules")
    if draft.given.get("lr_scheduler_type") == "constant":
        return no_equal("constant does not warm up")
    return draft.take("schedule.warmup_fraction", number(value))


def lowest_rate(draft: Draft, value: Any) -> Found:
    """A learning rate as a share of the highest."""
    return draft.take("schedule.floor", number(value) / number(draft.get("learning_rate", 5e-5)))


def cycles(draft: Draft, value: Any) -> Found:
    """Restarts of the cosine; one cycle is the plain cosine."""
    plain = value == (1 if "restarts" in str(draft.get("lr_scheduler_type")) else 0.5)
    return Found("default") if plain else draft.take("schedule.cycles", value)


def bf16(draft: Draft, value: Any) -> Found:
    """The dtype of the run; `auto` is bf16 where the device has it, as everywhere that Cairn runs."""
    if value:
        return draft.take("training.precision", "bf16")
    if draft.get("fp16") or draft.get("pure_bf16") or draft.get("bfloat16") or draft.get("float16"):
        return Found("default")
    return draft.take("training.precision", "fp32")


def fp16(draft: Draft, value: Any) -> Found:
    """Half precision becomes bf16."""
    return draft.take("training.precision", "bf16", HALF) if value else Found("default")


def every(target: str, strategy: str) -> Rule:
    """Steps between two events, where the strategy counts steps."""

    def rule(draft: Draft, value: Any) -> Found:
        chosen = draft.get(strategy, "steps")
        if chosen != "steps":
            return no_equal(f"has no effect with {strategy} {chosen}")
        if number(value) < 1:
            return no_equal(f"a share of the run; set {target} to a number of steps")
        return draft.take(target, int(number(value)))

    return rule


def strategy(steps_key: str, target: str) -> Rule:
    """When something happens: counted in steps, or at the end."""

    def rule(draft: Draft, value: Any) -> Found:
        if value == "steps" and draft.get(steps_key) is None:
            return draft.take(target, int(draft.get("logging_steps", 500)), f"{steps_key} is not given")
        if value in ("steps", "no"):
            return Found("default")
        return no_equal(f"steps are counted here: set {target}; without it, once at the end")

    return rule


def trackers(draft: Draft, value: Any) -> Found:
    """Where metrics go; the run's own JSONL always."""
    asked = TRACKERS.names() if value == "all" else names_of(value)
    wanted = [name for name in asked if name not in ("none", "jsonl")]
    known = [name for name in wanted if name in (*PLANNED_TRACKERS, *TRACKERS.names())]
    others = [name for name in wanted if name not in known]
    lacking = [name for name in known if name not in TRACKERS.names()]
    notes = [f"there is no tracker {', '.join(others)}"] if others else []
    notes += [f"this version has no tracker {', '.join(lacking)}"] if lacking else []
    before = draft.values.get("training", {}).get("trackers", ["jsonl"])
    merged = [*before, *(name for name in known if name not in before)]
    return draft.take("training.trackers", merged, "; ".join(notes))


def deepspeed(draft: Draft, value: Any) -> Found:
    """The ZeRO stage and the offload from a DeepSpeed configuration; from the file's name where it is not there."""
    if isinstance(value, str):
        file = _find(value, draft.path)
        if file is None:
            named = re.search(r"z(?:ero)?[_-]?([0-3])", Path(value).name, re.IGNORECASE)
            if named is None:
                raise NoEqual("the file is not there; set training.zero_stage")
            return draft.take("training.zero_stage", int(named[1]), "by its name; the file is not there")
        value = json.loads(file.read_text(encoding="utf-8"))
    zero = value.get("zero_optimization", {})
    notes = []
    if zero.get("offload_optimizer", {}).get("device", "none") != "none":
        draft.take("training.offload_optimizer", True)
        notes.append("and training.offload_optimizer")
    if zero.get("offload_param", {}).get("device", "none") != "none":
        notes.append("parameters are not offloaded here")
    return draft.take("training.zero_stage", zero.get("stage", 0), "; ".join(notes))


def _find(name: str, source: Path) -> Path | None:
    """As the source's program would find it: from here, or from a folder above the configuration."""
    for folder in (Path(), *source.resolve().parents):
        file = folder / name
        if file.is_file():
            try:
                json.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise UserError(f"not valid JSON: {error}", where=str(file), next_step="mend it") from None
            return file
    return None


def run_name(draft: Draft, value: Any) -> Found:
    """A run's name, which here is also the name of its folder."""
    return draft.take("storage.run", re.sub(r"[^\w.-]+", "-", str(value)).strip("-."))


def output_folder(draft: Draft, value: Any) -> Found:
    """The folder's name becomes the run's, unless there is a name already."""
    if draft.get("run_name") or draft.get("ray_run_name") or draft.get("wandb_name"):
        return no_equal("runs lie under storage.path by their names")
    parts = [part for part in Path(value).parts if part not in ("/", ".", "..", "~", "saves", "output", "outputs")]
    return run_name(draft, "-".join(parts) or "run")


KEYS: dict[str, Rule] = {
    "learning_rate": To("optimizer.learning_rate", number),
    "weight_decay": To("optimizer.weight_decay", number),
    "adam_beta1": betas,
    "adam_beta2": betas,
    "adam_epsilon": To("optimizer.eps", number),
    "max_grad_norm": To("training.max_grad_norm", number),
    "max_steps": steps,
    "warmup_steps": warmup_steps,
    "warmup_ratio": warmup_ratio,
    "bf16": bf16,
    "fp16": fp16,
    "deepspeed": deepspeed,
    "seed": To("training.seed"),
    "logging_steps": every("training.log_every", "logging_strategy"),
    "save_steps": every("training.checkpoint_every", "save_strategy"),
    "save_strategy": strategy("save_steps", "training.checkpoint_every"),
    "save_total_limit": To("training.keep_checkpoints"),
    "eval_steps": every("training.evaluate_every", "eval_strategy"),
    "eval_strategy": strategy("eval_steps", "training.evaluate_every"),
    "evaluation_strategy": strategy("eval_steps", "training.evaluate_every"),
    "neftune_noise_alpha": To("stage.neftune_alpha"),
    "label_smoothing_factor": To("stage.label_smoothing", off=0),
    "use_cpu": To("training.use_gpu", Choice({True: "no"}), off=False),
    "run_name": run_name,
    "output_dir": output_folder,
    "report_to": trackers,
    "ray_num_workers": To("training.workers"),
}

LEFT = {
    "the same run name goes on where it stopped; a changed recipe under an old name is refused": (
        "resume_from_checkpoint overwrite_output_dir auto_resume_from_checkpoints ignore_data_skip"
    ),
    "held-out documents are scored in batches that do not change the result": (
        "per_device_eval_batch_size eval_batch_size eval_accumulation_steps eval_do_concat_batches bf16_full_eval"
        " fp16_full_eval prediction_loss_only batch_eval_metrics"
    ),
    "set training.zero_stage 3: ZeRO shards what FSDP shards": "fsdp fsdp_config fsdp_version fsdp_final_state_dict_type",
    "DeepSpeed and Ray Train carry the workers; there is nothing to set": (
        "ddp_timeout ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_backend ddp_static_graph"
        " local_rank accelerator_config parallelism_config world_size"
    ),
    "batches are made ahead by Ray Data": (
        "dataloader_num_workers dataloader_pin_memory dataloader_drop_last dataloader_prefetch_factor"
        " dataloader_persistent_workers dataloader_multiprocessing_context dataloader_in_order remove_unused_columns"
    ),
    "rows are packed, so lengths need no sorting": "group_by_length length_column_name train_sampling_strategy",
    "a checkpoint is whole, so that a killed run resumes exactly": (
        "save_only_model save_safetensors save_on_each_node enable_jit_checkpoint"
    ),
    "the last state is published; compare runs by their held-out metrics": (
        "load_best_model_at_end metric_for_best_model greater_is_better"
    ),
    "nothing is uploaded; publish in the store (storage.publish) and export": (
        "push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_revision hub_always_push"
    ),
    "one seed makes a run repeatable": "data_seed full_determinism",
    "evaluation runs every training.evaluate_every steps and at the end": "do_eval eval_on_start eval_delay",
    "training does not predict; serve the adapter or run cairn evaluate": (
        "do_predict predict_with_generate generation_max_length generation_num_beams generation_config"
    ),
    "progress and metrics are always logged, on every step that is due": (
        "logging_dir logging_strategy logging_first_step logging_nan_inf_filter log_level log_level_replica"
        " disable_tqdm include_num_input_tokens_seen include_tokens_per_second skip_memory_metrics debug"
    ),
    "the optimizer's keys stand in the optimizer section": "optim_args optim_target_modules",
    "not offered: kernels and compilation are chosen by measurement": (
        "tf32 torch_compile torch_compile_backend torch_compile_mode use_liger_kernel liger_kernel_config"
        " torch_empty_cache_steps auto_find_batch_size"
    ),
    "recomputation is one switch": "gradient_checkpointing_kwargs activation_checkpointing_kwargs",
    "losses are sums over the global batch's tokens, whatever the workers": "average_tokens_across_devices",
    "not offered": (
        "trackio_space_id trackio_bucket_id trackio_static_space_id project past_index label_names use_cache"
        " eval_use_gather_object include_for_metrics restore_callback_states_from_checkpoint log_on_each_node"
    ),
    "reserve by training.cpus_per_worker and training.use_gpu": "resources_per_worker placement_strategy",
    "join a cluster with ray start, or submit with cairn submit": "ray_init_kwargs master_addr master_port use_ray",
    "set storage.path to a folder that every node sees": "ray_storage_path ray_storage_filesystem",
}
DEFAULTS: dict[str, Any] = {
    "per_device_eval_batch_size": 8, "eval_do_concat_batches": True, "dataloader_pin_memory": True,
    "save_safetensors": True, "logging_strategy": "steps", "logging_nan_inf_filter": True, "log_level": "passive",
    "log_level_replica": "warning", "skip_memory_metrics": True, "average_tokens_across_devices": True,
    "hub_strategy": "every_save", "placement_strategy": "PACK", "use_ray": True, "local_rank": -1,
    "ray_storage_path": "./saves", "dataloader_num_workers": 0, "resources_per_worker": {"GPU": 1},
    "length_column_name": "length", "dataloader_in_order": True, "log_on_each_node": True, "train_sampling_strategy": "random", "project": "huggingface",
}  # fmt: skip
RULES: dict[str, Rule] = {**left_out(LEFT, DEFAULTS), **KEYS}
