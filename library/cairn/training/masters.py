"""fp32 masters of bf16 parameters, for an optimizer that steps on whole parameters (ZeRO 0).

Gradients are accumulated in fp32 on the working parameter (`grad_dtype`), lent to its master for the step, and the
master is rounded back afterwards. Cost: 4 bytes for the master and 4 for the gradient of each trained parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def put_masters(
    optimizer: torch.optim.Optimizer, parameters: Iterable[torch.nn.Parameter]
) -> dict[torch.nn.Parameter, torch.nn.Parameter]:
    """fp32 masters of `parameters`, put in their place in `optimizer`; an fp32 parameter is its own master."""
    masters = {p: p if p.dtype != torch.bfloat16 else torch.nn.Parameter(p.detach().float()) for p in parameters}
    copies = [(p, master) for p, master in masters.items() if p is not master]
    for group in optimizer.param_groups:
        group["params"] = [masters[p] for p in group["params"]]
    for parameter, _ in copies:
        parameter.grad_dtype = torch.float32

    def lend_gradients(*_: Any) -> None:
        for parameter, master in copies:
            master.grad = parameter.grad

    @torch.no_grad()
    def round_back(*_: Any) -> None:
        for parameter, master in copies:
            parameter.copy_(master)
            master.grad = None

    optimizer.register_step_pre_hook(lend_gradients)
    optimizer.register_step_post_hook(round_back)
    return masters
