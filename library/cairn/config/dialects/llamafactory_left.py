"""LlamaFactory's keys without an equal here, by the reason. Its trainer's are in `trainer`."""

from __future__ import annotations

from typing import Any

LEFT = {
    "the model's own chat template is used, never a copy; for a base model without one set data.template": "template",
    "the model's own chat template says it": "tool_format enable_thinking preserve_thinking default_system",
    "token shards are kept under a fingerprint of everything that matters; there is nothing to name": (
        "tokenized_path overwrite_cache data_shared_file_system"
    ),
    "rows are packed, so lengths need no sorting": "sortish_sampler",
    "Ray Data takes the CPUs that there are": "preprocessing_num_workers preprocessing_batch_size",
    "the order is drawn from the seed over the whole epoch": "disable_shuffling",
    "padding is never in the loss": "ignore_pad_token_for_loss",
    "each file of data.validation is scored by itself": "eval_on_each_dataset",
    "answers alone are trained; for every token, train on documents with stage pretrain": "train_on_prompt",
    "text only here": (
        "media_dir image_max_pixels image_min_pixels image_do_pan_and_scan crop_to_patches video_max_pixels"
        " video_min_pixels video_fps video_maxlen use_audio_in_video audio_sampling_rate freeze_vision_tower"
        " freeze_multi_modal_projector freeze_language_model"
    ),
    "models are loaded from $CAIRN_HOME/models or the hub's own cache": "cache_dir offload_folder low_cpu_mem_usage",
    "give the token to the hub's own login": "hf_hub_token ms_hub_token om_hub_token",
    "name the folder itself in adapter_name_or_path": "adapter_folder",
    "the tokenizer is the model's own": "use_fast_tokenizer split_special_tokens",
    "the vocabulary stays as it is": (
        "resize_vocab add_tokens add_special_tokens new_special_tokens_config init_special_tokens"
    ),
    "the model's own config says it": "rope_scaling moe_aux_loss_coef upcast_layernorm upcast_lmhead_output",
    "not offered: it changes the model's architecture": "shift_attn mixture_of_depths use_llama_pro",
    "LlamaFactory never reads it; disable_gradient_checkpointing rules": (
        "gradient_checkpointing activation_checkpointing"
    ),
    "training starts from the weights of model.path": "train_from_scratch",
    "kernels are chosen by measurement": (
        "use_unsloth use_unsloth_gc enable_liger_kernel use_reentrant_gc use_v1_kernels use_kt kt_optimize_rule"
        " cpu_infer chunk_size mode kt_maxlen kt_use_cuda_graph kt_mode kt_force_think"
    ),
    "bitsandbytes quantises while loading; a GPTQ or AWQ model is named in model.path": (
        "quantization_method quantization_device_map"
    ),
    "not offered": "fp8 fp8_backend fp8_enable_fsdp_float8_all_gather use_mca",
    "an adapter always goes on under a new version; its parent stays as it was": "create_new_adapter",
    "an adapter is converted when it is saved": "pissa_convert",
    "LlamaFactory never reads it; lora_target rules": "oft_target",
    "sft is cross-entropy; this loss is not offered": (
        "use_dft_loss use_asft_loss asft_alpha use_eaft_loss eaft_alpha"
    ),
    "an adapter or a quantisation of another model is part of that model's own entry": (
        "ref_model_adapters ref_model_quantization_bit reward_model_adapters reward_model_quantization_bit"
        " reward_model_type"
    ),
    "rollouts fill one global batch": "ppo_buffer_size",
    "chosen and logged by the optimizer": "badam_verbose",
    "set training.steps; compare runs by their held-out metrics": "early_stopping_steps",
    "always logged; cairn dashboard draws it": (
        "plot_loss include_effective_tokens_per_second compute_accuracy print_param_status"
    ),
    "there is no such tracker": (
        "use_swanlab swanlab_project swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir"
        " swanlab_lark_webhook_url swanlab_lark_secret"
    ),
    "cairn train trains; that is all it does": "do_train",
    "not a matter of training; cairn serve answers": (
        "infer_backend infer_dtype use_kv_cache vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank"
        " vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config sglang_lora_backend"
    ),
    "not a matter of training; cairn export writes": (
        "export_dir export_size export_device export_quantization_bit export_quantization_dataset"
        " export_quantization_nsamples export_quantization_maxlen export_legacy_format export_hub_model_id"
    ),
    "answers are sampled by temperature, top_p and top_k alone": (
        "num_beams eval_num_beams repetition_penalty length_penalty skip_special_tokens"
    ),
    "max_new_tokens is the length of an answer": "max_length",
}
DEFAULTS: dict[str, Any] = {
    "do_train": True, "plot_loss": True, "template": None, "enable_thinking": True,
    "preprocessing_batch_size": 1000, "ignore_pad_token_for_loss": True, "image_max_pixels": 589824,
    "image_min_pixels": 1024, "video_max_pixels": 65536, "video_min_pixels": 256, "video_fps": 2.0,
    "video_maxlen": 128, "audio_sampling_rate": 16000, "freeze_vision_tower": True,
    "freeze_multi_modal_projector": True, "offload_folder": "offload", "low_cpu_mem_usage": True,
    "use_fast_tokenizer": True, "init_special_tokens": "noise_init", "use_reentrant_gc": True, "cpu_infer": 32,
    "chunk_size": 8192, "mode": "normal", "kt_maxlen": 4096, "kt_use_cuda_graph": True, "kt_mode": "normal",
    "quantization_method": "bnb", "fp8_backend": "auto", "oft_target": "all", "asft_alpha": 0.1, "eaft_alpha": 1.0,
    "reward_model_type": "lora", "ppo_buffer_size": 1, "badam_verbose": 0, "swanlab_project": "llamafactory",
    "swanlab_mode": "cloud", "infer_backend": "huggingface", "infer_dtype": "auto", "use_kv_cache": True,
    "vllm_maxlen": 4096, "vllm_gpu_util": 0.7, "vllm_max_lora_rank": 32, "sglang_maxlen": 4096,
    "sglang_mem_fraction": 0.7, "sglang_tp_size": -1, "sglang_lora_backend": "triton", "export_size": 5,
    "export_device": "cpu", "export_quantization_nsamples": 128, "export_quantization_maxlen": 1024, "num_beams": 1,
    "repetition_penalty": 1.0, "length_penalty": 1.0, "skip_special_tokens": True, "max_length": 1024,
}  # fmt: skip
