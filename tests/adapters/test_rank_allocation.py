"""AdaLoRA's allocation beside PEFT's own, and what is kept when components are worth the same."""

from __future__ import annotations

import pytest
import torch
from peft import AdaLoraConfig, get_peft_model

from cairn.adapters.methods.adalora import Adalora, Allocation
from cairn.adapters.rank_allocation import Budget, best
from cairn.adapters.specimens import build_specimen

pytestmark = pytest.mark.unit

TOTAL, WARMUP, FINAL = 10, 2, 3


@pytest.mark.parametrize("interval", [1, 2])
def test_ranks_are_allocated_as_peft_allocates_them(interval: int) -> None:
    torch.manual_seed(0)
    config = AdaLoraConfig(
        task_type="CAUSAL_LM",
        target_modules=["q_proj", "v_proj"],
        init_r=6,
        target_r=3,
        total_step=TOTAL,
        tinit=WARMUP,
        tfinal=FINAL,
        deltaT=interval,
    )
    theirs = get_peft_model(build_specimen("llama"), config)
    settings = {"rank": 3, "initial_rank": 6, "warmup": 0.2, "final": 0.3, "interval": interval}
    hook = Allocation(theirs, Adalora.Config.parse(settings), TOTAL)
    parameters = dict(theirs.named_parameters())
    generator = torch.Generator().manual_seed(1)
    budgets = []
    for step in range(1, TOTAL + 1):
        for name in hook.watched:
            draw = torch.randn(parameters[name].shape, generator=generator)
            parameters[name].data += 0.1 * draw
            parameters[name].grad = torch.randn(draw.shape, generator=generator)
        values = {name: parameters[name].detach().clone() for name in hook.watched}
        gradients = {name: parameters[name].grad for name in hook.watched}
        changed = hook.after_step(step, values, gradients)
        theirs.base_model.update_and_allocate(step)
        for name in hook.watched:
            torch.testing.assert_close(changed.get(name, values[name]), parameters[name].detach())
        budgets.append(sum(hook.ranks().values()))
    assert budgets[WARMUP - 1] == 6 * len(hook.layers)
    assert budgets[-1] == 3 * len(hook.layers)
    assert budgets == sorted(budgets, reverse=True)
    assert hook.figures()["mean_rank"] == 3


def test_the_orthogonality_term_is_pefts() -> None:
    config = AdaLoraConfig(
        task_type="CAUSAL_LM", target_modules=["q_proj"], init_r=4, total_step=TOTAL, orth_reg_weight=0.5
    )
    theirs = get_peft_model(build_specimen("llama"), config)
    hook = Allocation(theirs, Adalora.Config.parse({"initial_rank": 4, "rank": 2}), TOTAL)
    tokens = torch.arange(16)[None] + 8
    bare = theirs.base_model.model(input_ids=tokens, labels=tokens).loss
    torch.testing.assert_close(theirs(input_ids=tokens, labels=tokens).loss, bare + hook.penalty())


def test_the_budget_is_kept_exactly_also_where_components_are_worth_the_same() -> None:
    scores = {"a": torch.tensor([1.0, 0.0, 0.0]), "b": torch.tensor([0.0, 2.0, 0.0])}
    kept = best(scores, 3)
    assert kept["a"].tolist() == [True, True, False]
    assert kept["b"].tolist() == [False, True, False]


def test_the_budget_falls_by_a_cube() -> None:
    budget = Budget(first=100, target=20, begins=10, ends=30)
    assert [budget.at(step) for step in (1, 10, 20, 30, 99)] == [100, 100, 30, 20, 20]
