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
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from cairn.training import engine_state
from cairn.training.engine_config import compile_nothing, engine_config
from cairn.training.extension import await_build
from cairn.training.masters import put_masters

logging.getLogger("DeepSpeed").setLevel(logging.WARNING)

MASTER = "master"


@dataclass(frozen=True)
class StepResult:
    """One optimizer step over the global batch: `loss` in nats per unit of weight, all sums over all workers.

    `applied` is False where loss or gradient was not finite: nothing was updated. `losses` are this worker's
    micro-batches, each Σ nats. `gradients` are those that were asked for, as clipped, in fp32 and whole on every worker.
    """

    loss: Metric
    metrics: dict[str, Metric]
    grad_norm: float
    learning_rate: float
    applied: bool
    losses: tuple[float, ...]
    gradients: dict[str, torch.Tensor]


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
        self.max_grad_norm = max_grad_norm
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

    def step(
        self,
        batches: Sequence[Batch],
        stage: Stage,
        *,
        rate_factor: float = 1.0,
        penalty: Callable[[], torch.Tensor] | None = None,
        watched: Sequence[str] = (),
    ) -> StepResult:
        """One optimizer step over this worker's micro-batches; every worker calls it with equally many.

        `penalty` gives nats that are added to the global batch's mean loss; `watched` names parameters whose gradients
        are wanted. Raises CairnError where the global batch trains nothing.
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
            share = output.total * (poison * dist.get_world_size() / weight)
            if penalty is not None and len(parts) == self.accumulation:
                share = share + penalty()  # once a worker, of whose gradients DeepSpeed takes the mean
            self._deepspeed.backward(share, scale_wrt_gas=False)
            if len(parts) < self.accumulation:
                self._deepspeed.step()
        gradients = {name: self._gradient(self.trained[name]) for name in watched}
        grad_norm = self._update()
        kept = min(1.0, self.max_grad_norm / (grad_norm + 1e-6)) if self.max_grad_norm > 0 else 1.0
        gradients = {name: gradient * kept for name, gradient in gradients.items()}
        losses = tuple(part["loss"].total for part in parts)
        metrics = self.reduce(merge(parts))
        loss, applied = metrics.pop("loss"), math.isfinite(grad_norm)
        if applied:
            stage.after_step(metrics)
        return StepResult(loss, metrics, grad_norm, self._rates[0] * rate_factor, applied, losses, gradients)

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
        engine_state.link(self._deepspeed.optimizer)
        keys, scalars = engine_state.keys_of(self._optimizer)
        engine_state.write(folder, self.trained, [MASTER, *keys], scalars, get=self._get)
        dist.barrier()

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Take over what `save` wrote, whatever the number of workers and the ZeRO stage were then."""
        keys, scalars = engine_state.described(folder)
        engine_state.make(self._optimizer, self._deepspeed.optimizer, keys[1:], scalars)
        engine_state.read(folder, self.trained, keys, put=self._set, device=self.device)
        dist.barrier()

    @torch.no_grad()
    def masters(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """The fp32 values of trained parameters, whole on every worker; every worker calls it."""
        return {name: self._get(self.trained[name], MASTER).detach().float() for name in names}

    @torch.no_grad()
    def replace(self, values: Mapping[str, torch.Tensor]) -> None:
        """Set trained parameters and their masters; every worker calls it with the same."""
        for name, value in values.items():
            self._set(self.trained[name], MASTER, value)

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

    def _gradient(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Of the global batch, whole on every worker, before the optimizer's step clears it."""
        from deepspeed.utils import safe_get_full_grad

        gradient = parameter.grad if self.zero_stage == 0 else safe_get_full_grad(parameter)
        assert gradient is not None, "every trained parameter takes part in every step"
        return gradient.detach().to(torch.float32, copy=True)

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
