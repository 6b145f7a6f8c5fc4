"""What DeepSpeed is told. The micro-batch it counts in is 1: the loop alone knows rows, and divides."""

from __future__ import annotations

from typing import Any

LARGEST_BUCKET = 500_000_000


def engine_config(
    accumulation: int, precision: str, zero_stage: int, max_grad_norm: float, *, offload: bool, trained: int
) -> dict[str, Any]:
    """DeepSpeed's configuration: gradients accumulated and reduced in fp32, clipped at `max_grad_norm` (0: not).

    trained: numbers that are trained; DeepSpeed's buffer for half a billion would take 2 GB beside a small adapter.
    """
    zero: dict[str, Any] = {"stage": zero_stage}
    if zero_stage in (1, 2):
        zero["reduce_bucket_size"] = min(trained, LARGEST_BUCKET)
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": max_grad_norm,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
        "communication_data_type": "fp32",
    }
    if precision == "bf16" and zero_stage > 0:
        config |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    return config


def compile_nothing(deepspeed: Any) -> None:
    """Tell DeepSpeed that its shared-memory all-reduce, which training does not use, cannot be built here."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
