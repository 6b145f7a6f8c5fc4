"""The DeepSpeed engine behind four calls: step, evaluate, save, load. DeepSpeed's traps are met here, nowhere else.

* The gradient is exactly Σ loss / Σ weight of the global batch: the weight is summed over micro-batches and workers
  before the first backward, and DeepSpeed's averaging over workers is undone.
* In bf16 every trained parameter (LoRA's too) works in bf16 and has an fp32 master; gradients are accumulated and
  reduced in fp32, the optimizer steps on the master, and the working copy is the master rounded. ZeRO 1 to 3 do so
  inside DeepSpeed; at ZeRO 0 DeepSpeed would accumulate in bf16 and step once at construction, so there the masters
  are ours. All equal plain torch with fp32 masters, from the first update on.
* At ZeRO 0 DeepSpeed knows no gradient norm; it is computed here.
* A loss or gradient that is not finite changes nothing. ZeRO 1 to 3 leave out such a gradient by themselves, ZeRO 0
  does here; a loss that is not finite is made to give such a gradient, on whichever worker it was.
* On a CPU DeepSpeed would compile an all-reduce for inference; a process killed meanwhile leaves a lock file on which
  every later one waits without a word. It is left out.
* `save` gathers masters and optimizer state by parameter name, so that they load, bit for bit, at any number of
  workers and any ZeRO stage. Cost: 12 bytes a trained parameter pass through the first worker.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cairn.data.batch import Batch
from cairn.errors import CairnError, UserError
from cairn.metrics import Metric, merge
from cairn.stages.base import Models, Stage
from cairn.training.engine_config import compile_nothing, engine_config
from cairn.training.extension import await_build
from cairn.training.masters import put_masters

logging.getLogger("DeepSpeed").setLevel(logging.WARNING)

STATE_FILE, SCALARS_FILE = "optimizer.safetensors", "optimizer.json"
MASTER = "master"


@dataclass(frozen=True)
class StepResult:
    """One optimizer step over the global batch: `loss` in nats per unit of weight, all sums over all workers.

    `applied` is False where loss or gradient was not finite: nothing was updated. `losses` are this worker's
    micro-batches, each Σ nats.
    """

    loss: Metric
    metrics: dict[str, Metric]
    grad_norm: float
    learning_rate: float
    applied: bool
    losses: tuple[float, ...]


class Engine:
    """Trains `model` with `optimizer` (over its trainable parameters) on the process group that is already there."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        accumulation: int,
        precision: str = "fp32",
        zero_stage: int = 0,
        offload_optimizer: bool = False,
        max_grad_norm: float = 0.0,
        device: torch.device | str = "cpu",
        reference: Callable[..., Any] | None = None,
    ) -> None:
        import deepspeed

        compile_nothing(deepspeed)
        self.accumulation, self.zero_stage, self.device = accumulation, zero_stage, torch.device(device)
        self.model = model.to(self.device)
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self.trained:
            raise UserError("no parameter of the model is trained", next_step="check adapter.targets")
        if precision == "bf16":
            for parameter in self.trained.values():
                parameter.data = parameter.data.to(torch.bfloat16)
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._masters: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
        if offload_optimizer:
            optimizer = _cpu_adam(optimizer)
        if zero_stage == 0:
            self._masters = put_masters(optimizer, self.trained.values())
        size, offload = sum(p.numel() for p in self.trained.values()), offload_optimizer
        config = engine_config(accumulation, precision, zero_stage, max_grad_norm, offload=offload, trained=size)
        self._deepspeed, *_ = deepspeed.initialize(
            model=self.model, optimizer=optimizer, config=config, dist_init_required=False
        )
        self._optimizer = self._deepspeed.basic_optimizer
        self.models = Models(self._deepspeed, reference)

    def step(self, batches: Sequence[Batch], stage: Stage, *, rate_factor: float = 1.0) -> StepResult:
        """One optimizer step over this worker's micro-batches; every worker calls it with equally many.

        Raises CairnError where the global batch trains nothing.
        """
        assert len(batches) == self.accumulation, (len(batches), self.accumulation)
        weight = self.total(sum(stage.weight(batch) for batch in batches))
        if weight <= 0:
            raise CairnError("no token of the global batch is trained", where=str(batches[0].sources[:1]))
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * rate_factor
        batches = [batch.to(self.device) for batch in batches]
        self._deepspeed.eval()
        stage.before_step(batches, self.models, self.total)
        self._deepspeed.train()
        parts = []
        for batch in batches:
            output = stage.loss(batch, self.models)
            parts.append({"loss": Metric(output.total.item(), output.weight), **output.metrics})
            poison = 1.0 if math.isfinite(parts[-1]["loss"].total) else math.nan
            self._deepspeed.backward(output.total * (poison * dist.get_world_size() / weight), scale_wrt_gas=False)
            if len(parts) < self.accumulation:
                self._deepspeed.step()
        grad_norm = self._update()
        losses = tuple(part["loss"].total for part in parts)
        metrics = self.reduce(merge(parts))
        loss, applied = metrics.pop("loss"), math.isfinite(grad_norm)
        if applied:
            stage.after_step(metrics)
        return StepResult(loss, metrics, grad_norm, self._rates[0] * rate_factor, applied, losses)

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch], stage: Stage, *, counted: bool = True) -> dict[str, Metric]:
        """The stage's loss (under "loss") and metrics over `batches`, summed over the workers that are `counted`.

        Under ZeRO 3 every worker must bring equally many batches.
        """
        batches = [batch.to(self.device) for batch in batches]
        self._deepspeed.eval()
        stage.before_step(batches, self.models, self.total)
        parts = []
        for batch in batches:
            output = stage.loss(batch, self.models)
            parts.append({"loss": Metric(output.total.item(), output.weight), **output.metrics})
        return self.reduce(merge(parts) if counted else {})

    def reduce(self, metrics: dict[str, Metric]) -> dict[str, Metric]:
        """The sums over all workers, the same on each; every worker calls it."""
        gathered: list[dict[str, Metric]] = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(gathered, metrics)
        return merge(gathered)

    @contextmanager
    def whole(self) -> Iterator[torch.nn.Module]:
        """The model with all its parameters present, also under ZeRO 3; every worker enters together."""
        import deepspeed

        gather: Any = contextlib.nullcontext()
        if self.zero_stage == 3:
            gather = deepspeed.zero.GatheredParameters(list(self.model.parameters()))
        with gather:
            yield self.model

    def save(self, folder: Path) -> None:
        """Write masters and optimizer state into `folder`, from the first worker; every worker calls it."""
        from safetensors.torch import save_file

        self._link_states()
        tensor_keys, scalars = self._state_keys()
        gathered = {}
        for name, parameter in self.trained.items():
            for key in (MASTER, *tensor_keys):
                value = self._get(parameter, key)
                if dist.get_rank() == 0:
                    gathered[f"{key}/{name}"] = value.detach().to("cpu", copy=True).contiguous()
        if dist.get_rank() == 0:
            save_file(gathered, folder / STATE_FILE)
            (folder / SCALARS_FILE).write_text(json.dumps({"tensors": tensor_keys, "scalars": scalars}))
        dist.barrier()

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Take over what `save` wrote, whatever the number of workers and the ZeRO stage were then."""
        from safetensors import safe_open

        described = json.loads((folder / SCALARS_FILE).read_text())
        self._make_state(described["tensors"], described["scalars"])
        with safe_open(folder / STATE_FILE, framework="pt") as file:
            stored = {key.partition("/")[2] for key in file.keys()}  # noqa: SIM118 - not a dict
            if stored != set(self.trained):
                raise CairnError(
                    f"the checkpoint trains other parameters: {sorted(stored ^ set(self.trained))[:4]} …",
                    where=str(folder),
                    next_step="resume with the recipe of that run",
                )
            for name, parameter in self.trained.items():
                for key in (MASTER, *described["tensors"]):
                    self._set(parameter, key, file.get_tensor(f"{key}/{name}").to(self.device))
        dist.barrier()

    def total(self, value: float) -> float:
        """The sum of the workers' values."""
        return self._reduced(value, dist.ReduceOp.SUM)

    def largest(self, value: float) -> float:
        """The greatest of the workers' values."""
        return self._reduced(value, dist.ReduceOp.MAX)

    def _reduced(self, value: float, operation: Any) -> float:
        tensor = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, op=operation)
        return float(tensor)

    def _update(self) -> float:
        """Step the optimizer, unless the gradient's norm is not finite; returns the norm, the same on every worker."""
        if self.zero_stage > 0:
            self._deepspeed.step()
            return float(self._deepspeed.get_global_grad_norm())
        norm = float(torch.nn.utils.get_total_norm([p.grad for p in self.trained.values() if p.grad is not None]))
        if math.isfinite(norm):
            self._deepspeed.step()
        else:  # only counted, as a micro-batch in the middle of a step is
            self._deepspeed.set_gradient_accumulation_boundary(False)
            self._deepspeed.step()
            self._deepspeed.set_gradient_accumulation_boundary(None)
            self._deepspeed.zero_grad()
        return norm

    def _state_keys(self) -> tuple[list[str], dict[str, float]]:
        """Names of the per-element states, and the values that all parameters share (the step count)."""
        state: dict[str, Any] = next(iter(self._optimizer.state.values()), {})
        tensors = sorted(key for key, value in state.items() if torch.is_tensor(value) and value.dim() > 0)
        return tensors, {key: float(value) for key, value in state.items() if key not in tensors}

    def _link_states(self) -> None:
        """ZeRO 1 and 2 link states to parameters when the first group has stepped, and so miss those of the others."""
        zero = self._deepspeed.optimizer
        if getattr(zero, "_hp_optimizer_states_linked", False):
            zero._hp_optimizer_states_linked = False
            zero._lazy_init_hp_params_optimizer_state()

    def _make_state(self, tensors: Sequence[str], scalars: dict[str, float]) -> None:
        """The optimizer state as its first step would make it, so that there is something to fill."""
        zero = self._deepspeed.optimizer
        flat = getattr(zero, "fp32_partitioned_groups_flat", None)
        targets = flat or [p for group in self._optimizer.param_groups for p in group["params"]]
        counts_in_tensors = isinstance(self._optimizer, torch.optim.Adam)
        for target in targets if tensors else ():
            made: dict[str, Any] = {key: torch.zeros_like(target) for key in tensors}
            for key, value in scalars.items():
                made[key] = torch.tensor(value, dtype=torch.float32) if counts_in_tensors else int(value)
            self._optimizer.state[target] = made
        if tensors and hasattr(zero, "_lazy_init_hp_params_optimizer_state"):
            zero._lazy_init_hp_params_optimizer_state()

    def _get(self, parameter: torch.nn.Parameter, key: str) -> torch.Tensor:
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if self.zero_stage == 0:
            master = self._masters[parameter]
            return master if key == MASTER else self._optimizer.state[master][key]
        if key == MASTER:
            return safe_get_full_fp32_param(parameter)
        return safe_get_full_optimizer_state(parameter, key)

    def _set(self, parameter: torch.nn.Parameter, key: str, value: torch.Tensor) -> None:
        import deepspeed
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        if key != MASTER and self.zero_stage > 0:
            safe_set_full_optimizer_state(parameter, value, key)
        elif key != MASTER:
            self._optimizer.state[self._masters[parameter]][key].copy_(value)
        else:
            if self.zero_stage > 0:
                safe_set_full_fp32_param(parameter, value)
            else:
                self._masters[parameter].copy_(value)
            gather = self.zero_stage == 3
            with (
                deepspeed.zero.GatheredParameters([parameter], modifier_rank=0) if gather else contextlib.nullcontext()
            ):
                parameter.data.copy_(value)


def _cpu_adam(optimizer: torch.optim.Optimizer) -> Any:
    """DeepSpeed's Adam for optimizer state in CPU memory, with the groups and settings of `optimizer`."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    if type(optimizer) is not torch.optim.AdamW:
        raise UserError(
            f"{type(optimizer).__name__} cannot be offloaded", where="training.offload_optimizer", next_step="use adamw"
        )
    await_build("cpu_adam")
    return DeepSpeedCPUAdam(optimizer.param_groups, adamw_mode=True)
