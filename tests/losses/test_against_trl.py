"""The losses agree with TRL's own code on the same numbers: its trainers' loss methods, called without a trainer.

A `Recorded` model hands TRL the log-probabilities that it would have computed. TRL returns means of a batch, so means
are compared. Where TRL differs on purpose it is said beside the case.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cairn.losses.answers import answer_lengths, answer_sums, desensitised_weights, token_means
from cairn.losses.cross_entropy import token_nll
from cairn.losses.distillation import distillation
from cairn.losses.judgement import kl_baseline, kto
from cairn.losses.preference import VARIANTS, logistic
from cairn.losses.ranking import bradley_terry
from cairn.losses.reference_free import cpo, log_odds, orpo, simpo
from cairn.losses.token_weights import dft_weights

pytestmark = pytest.mark.slow

ROWS, WIDTH, PROMPT = 6, 12, 3
LENGTHS = torch.tensor([4, 9, 1, 2, 7, 6])
"""Tokens of each answer: three chosen, then the three rejected."""
MASK = (torch.arange(WIDTH) >= PROMPT) & (torch.arange(WIDTH) < PROMPT + LENGTHS[:, None])
ANSWER = torch.arange(ROWS).repeat_interleave(LENGTHS)


def token_logps(seed: int) -> torch.Tensor:
    """Per-token log-probabilities [rows, width − 1], 0 outside the answers, as TRL's fused head gives them."""
    generator = torch.Generator().manual_seed(seed)
    return -2 * torch.rand(ROWS, WIDTH - 1, generator=generator, dtype=torch.float64) * MASK[:, 1:]


POLICY, REFERENCE = token_logps(1), token_logps(2)
CHOSEN, REJECTED = slice(None, 3), slice(3, None)


class Recorded(torch.nn.Module):
    """A model whose log-probabilities are known."""

    is_gradient_checkpointing = False

    def __init__(self, logps: torch.Tensor) -> None:
        super().__init__()
        self.logps = logps

    def forward(self, **_: Any) -> SimpleNamespace:
        zeros = torch.zeros_like(self.logps)
        mask = MASK[:, 1:]
        return SimpleNamespace(
            log_probs=self.logps, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool(), label_mask=mask
        )


def carrier(**fields: Any) -> SimpleNamespace:
    """What TRL's methods read from `self`: one process, and the options of the case."""

    def same(values: torch.Tensor) -> torch.Tensor:
        return values

    accelerator = SimpleNamespace(
        device=torch.device("cpu"), gather=same, gather_for_metrics=same, parallelism_config=None
    )
    return SimpleNamespace(
        accelerator=accelerator,
        aux_loss_enabled=False,
        precompute_ref_logps=False,
        model=Recorded(POLICY),
        ref_model=Recorded(REFERENCE),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None, discopop_tau=0.05, center_rewards_coefficient=None),
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
        **fields,
    )


def trl_dpo(loss_type: str, *, label_smoothing: float = 0.0, ld_alpha: float | None = None) -> torch.Tensor:
    from trl.trainer.dpo_trainer import DPOTrainer

    trainer = carrier(
        beta=0.3,
        loss_types=[loss_type],
        loss_weights=[1.0],
        label_smoothing=label_smoothing,
        ld_alpha=ld_alpha,
        f_divergence_type="reverse_kl",
        use_weighting=False,
    )
    inputs = {
        "input_ids": torch.zeros(ROWS, WIDTH, dtype=torch.long),
        "attention_mask": torch.ones(ROWS, WIDTH, dtype=torch.long),
        "completion_mask": MASK.long(),
    }
    return DPOTrainer._compute_loss(trainer, trainer.model, inputs, return_outputs=False)


def ratios(*, ld_alpha: float | None = None) -> torch.Tensor:
    weights = torch.ones(len(ANSWER), dtype=torch.float64)
    if ld_alpha is not None:
        shared = torch.minimum(LENGTHS[CHOSEN], LENGTHS[REJECTED]).repeat(2)
        weights = desensitised_weights(ANSWER, shared, alpha=ld_alpha)
    lp, ref = (answer_sums(logps[MASK[:, 1:]] * weights, ANSWER, ROWS) for logps in (POLICY, REFERENCE))
    return lp - ref


@pytest.mark.parametrize(
    ("name", "trl_name", "s"),
    [
        ("sigmoid", "sigmoid", 0.0),  # TRL's sigmoid has no smoothing: see the closed form, and `cpo` below
        ("sigmoid_norm", "sigmoid_norm", 0.0),
        ("robust", "robust", 0.1),
        ("hinge", "hinge", 0.0),
        ("ipo", "ipo", 0.0),
        ("exo", "exo_pair", 0.1),
        ("bco", "bco_pair", 0.0),  # TRL's has no running mean of rewards: δ = 0
        ("nca", "nca_pair", 0.0),
        ("sppo_hard", "sppo_hard", 0.0),
        ("apo_zero", "apo_zero", 0.0),
        ("apo_down", "apo_down", 0.0),
        ("discopop", "discopop", 0.0),
    ],
)
def test_dpo(name: str, trl_name: str, s: float) -> None:
    variant, d = VARIANTS[name], ratios()
    if variant.per_token:
        d = token_means(d, answer_lengths(ANSWER, ROWS))
    ours = variant(d[CHOSEN], d[REJECTED], beta=0.3, label_smoothing=s).mean()
    # EXO's log s is taken in fp32 there.
    torch.testing.assert_close(
        ours, trl_dpo(trl_name, label_smoothing=s), rtol=1e-7 if name == "exo" else 1e-12, atol=0
    )


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_length_desensitised_dpo(alpha: float) -> None:
    d = ratios(ld_alpha=alpha)
    ours = VARIANTS["sigmoid"](d[CHOSEN], d[REJECTED], beta=0.3).mean()
    torch.testing.assert_close(ours, trl_dpo("sigmoid", ld_alpha=alpha), rtol=1e-7, atol=0)


@pytest.mark.parametrize("good", [[True, True, False, False, True, False], [True] * 6, [False] * 6])
@pytest.mark.parametrize("mismatch", [5.0, -5.0])
def test_kto(good: list[bool], mismatch: float) -> None:
    from trl.trainer.kto_trainer import KTOTrainer

    def kl_logps(model: Recorded, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return model.logps.sum(-1) + (mismatch if model is trainer.model else 0.0)

    trainer = carrier(beta=0.2, loss_type="kto", calculate_KL=True, desirable_weight=1.3, undesirable_weight=0.8)
    trainer._compute_kl_logps = kl_logps
    batch = {
        "input_ids": torch.zeros(ROWS, WIDTH, dtype=torch.long),
        "attention_mask": torch.ones(ROWS, WIDTH, dtype=torch.long),
        "completion_mask": MASK.long(),
        "label": torch.tensor(good),
    }
    theirs = KTOTrainer._compute_loss(trainer, trainer.model, batch, return_outputs=False)

    mismatched = (POLICY.sum(-1) + mismatch) - REFERENCE.sum(-1)
    baseline = kl_baseline(mismatched.sum().item(), ROWS)
    assert (baseline > 0) is (mismatch > 0)
    ours = kto(ratios(), torch.tensor(good), baseline=baseline, beta=0.2, desirable_weight=1.3, undesirable_weight=0.8)
    torch.testing.assert_close(ours.mean(), theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("margin", [None, [0.0, 0.5, 2.0]])
@pytest.mark.parametrize("centring", [None, 0.01])
def test_reward(margin: list[float] | None, centring: float | None) -> None:
    from trl.trainer.reward_trainer import RewardTrainer

    scores = torch.tensor([0.3, -1.0, 4.0, 0.1, 2.0, -3.0], dtype=torch.float64)
    trainer = carrier()
    trainer.args.center_rewards_coefficient = centring
    inputs: dict[str, Any] = {"attention_mask": torch.ones(ROWS, WIDTH)}
    if margin is not None:
        inputs["margin"] = torch.tensor(margin, dtype=torch.float64)

    class Scorer(torch.nn.Module):
        def forward(self, **_: Any) -> SimpleNamespace:
            return SimpleNamespace(logits=scores[:, None])

    theirs = RewardTrainer.compute_loss(trainer, Scorer(), inputs)
    ours = bradley_terry(scores[CHOSEN], scores[REJECTED], margin=inputs.get("margin", 0.0), centring=centring or 0.0)
    torch.testing.assert_close(ours.mean(), theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("s", [0.0, 0.2])
def test_cpo_and_simpo(s: float) -> None:
    """TRL's CPO adds its SFT term elsewhere, as a mean over the batch's tokens; ours is each answer's own mean."""
    from trl.experimental.cpo.cpo_trainer import CPOTrainer

    def theirs(loss_type: str, logps: torch.Tensor) -> torch.Tensor:
        trainer = carrier(beta=0.3, alpha=0.0, loss_type=loss_type, label_smoothing=s, simpo_gamma=0.5)
        return CPOTrainer.cpo_loss(trainer, logps[CHOSEN], logps[REJECTED])[0]

    sums, tokens = POLICY.sum(-1), (LENGTHS[CHOSEN], LENGTHS[REJECTED])
    means = sums / LENGTHS
    ours = cpo(sums[CHOSEN], sums[REJECTED], tokens[0], beta=0.3, sft_weight=0.0, label_smoothing=s)
    torch.testing.assert_close(ours, theirs("sigmoid", sums), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        logistic(0.3 * (sums[CHOSEN] - sums[REJECTED]), s), theirs("sigmoid", sums), rtol=1e-12, atol=0
    )
    ours = simpo(sums[CHOSEN], sums[REJECTED], *tokens, beta=0.3, gamma=0.5, label_smoothing=s)
    torch.testing.assert_close(ours, theirs("simpo", means), rtol=1e-12, atol=0)


def test_orpo() -> None:
    """TRL subtracts β·log σ(log odds ratio) from the SFT term, in fp32."""
    from trl.experimental.orpo.orpo_trainer import ORPOTrainer

    sums, means = POLICY.sum(-1), POLICY.sum(-1) / LENGTHS
    odds_term, *_, log_odds_ratio = ORPOTrainer.odds_ratio_loss(carrier(beta=0.2), means[CHOSEN], means[REJECTED])
    ours = orpo(sums[CHOSEN], sums[REJECTED], LENGTHS[CHOSEN], LENGTHS[REJECTED], beta=0.2)
    torch.testing.assert_close(ours, -means[CHOSEN] - odds_term.double(), rtol=1e-6, atol=1e-7)
    ratio = (log_odds(means[CHOSEN]) - log_odds(means[REJECTED])).mean()
    torch.testing.assert_close(ratio, log_odds_ratio.double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_distillation(beta: float) -> None:
    """TRL's has no T²."""
    from trl.experimental.gkd.gkd_trainer import GKDTrainer

    student, teacher = torch.randn(2, 5, 30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    theirs = GKDTrainer.generalized_jsd_loss(student, teacher, beta=beta, temperature=2.0, reduction="none")
    ours = distillation(student, teacher, temperature=2.0, beta=beta)
    torch.testing.assert_close(ours, 4.0 * theirs.sum(-1), rtol=1e-10, atol=1e-12)


def test_label_smoothing() -> None:
    from transformers.trainer_pt_utils import LabelSmoother

    logits = torch.randn(1, 7, 30, generator=torch.Generator().manual_seed(4))
    labels = torch.arange(7)[None]
    theirs = LabelSmoother(epsilon=0.1)({"logits": logits}, labels)
    torch.testing.assert_close(token_nll(logits[0], labels[0], label_smoothing=0.1).mean(), theirs, rtol=1e-5, atol=0)


def test_dft() -> None:
    from trl.trainer.sft_trainer import SFTTrainer

    trainer = carrier(compute_loss_func=None, label_smoother=None)
    trainer.args = SimpleNamespace(loss_type="dft", average_tokens_across_devices=False)
    theirs = SFTTrainer.compute_loss(trainer, trainer.model, {"attention_mask": torch.ones(ROWS, WIDTH)})
    nll = -POLICY[MASK[:, 1:]]
    torch.testing.assert_close((nll * dft_weights(nll)).mean(), theirs, rtol=1e-12, atol=0)
