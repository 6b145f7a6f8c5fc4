"""Axolotl's keys without an equal here, by the reason. Its trainer's are in `trainer`."""

from __future__ import annotations

from typing import Any

LEFT = {
    "the classes are found from the model's own config": (
        "model_type base_model_config cls_model_config base_model_ignore_patterns is_falcon_derived_model"
        " is_llama_derived_model is_mistral_derived_model is_qwen_derived_model processor_type"
    ),
    "the tokenizer is the model's own": (
        "tokenizer_type tokenizer_config tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common"
        " tokenizer_save_jinja_files special_tokens"
    ),
    "the vocabulary stays as it is": (
        "tokens added_tokens_overrides resize_token_embeddings_to_32x mean_resizing_embeddings shrink_embeddings"
        " embeddings_skip_upcast fix_untrained_tokens"
    ),
    "the model's own chat template is used, never a copy; for a base model without one set data.template": (
        "chat_template chat_template_jinja chat_template_kwargs eot_tokens default_system_message"
    ),
    "token shards are kept under a fingerprint of everything that matters; there is nothing to name": (
        "dataset_prepared_path skip_prepare_dataset push_dataset_to_hub dataset_shard_num dataset_shard_idx"
    ),
    "Ray Data takes the CPUs that there are": (
        "dataset_processes dataset_num_proc dataset_keep_in_memory preprocess_iterable"
        " streaming_multipack_buffer_size pretrain_multipack_buffer_size"
    ),
    "the order is drawn from the seed over the whole epoch": "shuffle_merged_datasets curriculum_sampling",
    "answers alone are trained; for every token, train on documents with stage pretrain": "train_on_inputs",
    "exact copies are found by cairn prepare, not in training": "dataset_exact_deduplication",
    "rows are packed isolated and are never padded further": (
        "pad_to_sequence_len eval_sample_packing sample_packing_group_size sample_packing_bin_size"
        " sample_packing_sequentially multipack_real_batches pretraining_sample_concatenation"
        " pretrain_multipack_attn batch_flattening sample_packing_eff_est total_num_tokens total_supervised_tokens"
    ),
    "set data.truncation and data.sequence_length": "min_sample_len max_prompt_len excess_length_strategy",
    "not offered: it changes the model's architecture": (
        "s2_attention use_pose pose_split_on_token_ids pose_max_context_len pose_num_chunks rope_scaling"
        " overrides_of_model_config overrides_of_model_kwargs llama4_linearized_experts"
    ),
    "set training.checkpoint_every to a number of steps": "saves_per_epoch save_first_step",
    "set training.evaluate_every to a number of steps": "evals_per_epoch",
    "compare runs by their held-out metrics": "early_stopping_patience loss_watchdog_threshold loss_watchdog_patience",
    "read from the environment by the tracker itself": (
        "wandb_entity wandb_watch wandb_run_id wandb_log_model wandb_mode mlflow_experiment_name mlflow_run_name"
        " hf_mlflow_log_artifacts"
    ),
    "there is no such tracker": (
        "use_comet comet_api_key comet_workspace comet_project_name comet_experiment_key comet_mode comet_online"
        " comet_experiment_config"
    ),
    "held-out documents are scored in bits per byte": (
        "eval_table_size eval_max_new_tokens do_causal_lm_eval eval_causal_lm_metrics do_bench_eval bench_dataset"
        " bench_split"
    ),
    "kernels are chosen by measurement": (
        "flash_attn_cross_entropy flash_attn_rms_norm flash_attn_fuse_qkv flash_attn_fuse_mlp flash_optimum"
        " flex_attn_compile_kwargs unsloth_cross_entropy_loss unsloth_lora_mlp unsloth_lora_qkv unsloth_lora_o"
        " unsloth_rms_norm unsloth_rope lora_mlp_kernel lora_qkv_kernel lora_o_kernel use_kernels plugins liger_rope"
        " liger_rms_norm liger_layer_norm liger_glu_activation liger_fused_linear_cross_entropy liger_swiglu"
        " cut_cross_entropy"
    ),
    "data parallel and ZeRO; a sequence is not split": (
        "sequence_parallel_degree context_parallel_size heads_k_stride ring_attn_func tensor_parallel_size"
        " dp_shard_size dp_replicate_size ddp"
    ),
    "devices are given by Ray": (
        "device device_map max_memory gpu_memory_limit low_cpu_mem_usage lora_on_cpu qlora_sharded_model_loading"
        " experimental_skip_move_to_device"
    ),
    "bitsandbytes quantises while loading; a GPTQ or AWQ model is named in base_model": (
        "gptq bnb_config_kwargs qat quantization fp8 model_quantization_config model_quantization_config_kwargs"
    ),
    "the layer's kind decides it": "lora_fan_in_fan_out peft_autocast_adapter_dtype peft_ensure_weight_tying",
    "not offered for this adapter": (
        "lora_target_parameters peft_layers_pattern peft_layer_replication peft_trainable_token_indices peft"
        " loftq_config"
    ),
    "not offered": (
        "relora relora_prune_ratio relora_prune_method relora_cpu_offload relora_steps relora_warmup_steps"
        " jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps lisa_n_layers"
        " lisa_step_interval lisa_layers_attribute process_reward_model num_labels gc_steps profiler_steps"
        " torchdistx_path adam_epsilon2 adam_beta3 dpo_use_weighting dpo_use_logits_to_keep dpo_norm_loss"
        " center_rewards_coefficient"
    ),
    "one rate for all, by the schedule": (
        "embedding_lr embedding_lr_scale lr_groups lr_quadratic_warmup cosine_constant_lr_ratio lr_div_factor"
    ),
    "publish in the store and merge with cairn export --to safetensors": "merge_lora merge_method",
    "rollouts come from Cairn's own generator": (
        "vllm trl.use_vllm trl.vllm_device trl.vllm_gpu_memory_utilization trl.vllm_dtype trl.vllm_max_model_len"
        " trl.vllm_server_host trl.vllm_server_port trl.vllm_server_timeout trl.vllm_enable_prefix_caching"
        " trl.vllm_mode trl.log_completions trl.min_p trl.repetition_penalty"
    ),
    "the reference is the policy at step 0": ("trl.sync_ref_model trl.ref_model_mixup_alpha trl.ref_model_sync_steps"),
    "a cluster is joined by Ray": "ray_run_name cloud",
    "not a matter of training; cairn serve answers": (
        "gradio_title gradio_share gradio_server_name gradio_server_port gradio_max_new_tokens gradio_temperature"
        " inference"
    ),
    "unknown keys are always named": "strict",
    "not a key of a person's": "is_preprocess axolotl_config_path hf_use_auth_token save_first_step",
}
DEFAULTS: dict[str, Any] = {
    "shuffle_merged_datasets": True, "sample_packing_group_size": 100_000, "sample_packing_bin_size": 200,
    "pretrain_multipack_buffer_size": 10_000, "pretrain_multipack_attn": True, "max_prompt_len": 512,
    "tokenizer_save_jinja_files": True, "experimental_skip_move_to_device": True, "merge_method": "memory_efficient",
    "trl.vllm_enable_prefix_caching": True,
}  # fmt: skip
