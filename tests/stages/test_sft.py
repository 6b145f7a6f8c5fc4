"""What fine-tuning may mix into the plain cross-entropy, each against its formula over every conversation alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.stages.test_next_token import sample
from tests.tiny import build_model

from cairn.data.batch import Batch, collate
from cairn.data.packing import row_of
from cairn.data.rows import Sample
from cairn.models.noise import noisy_embeddings
from cairn.plugins import STAGES
from cairn.stages.base import Models, Stage

pytestmark = pytest.mark.unit
SAMPLES = [sample(seed, 7 + 5 * seed) for seed in range(3)]


def sft(**config: Any) -> Stage:
    kind: type[Stage] = STAGES.load("sft")
    return kind(kind.Config.parse(config))


def packed() -> Batch:
    return collate([row_of(SAMPLES[:2]), row_of(SAMPLES[2:])], pad_token=0)


def log_probabilities(model: Any, one: Sample) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """log p [n, vocabulary], labels and weights of one sample alone."""
    tokens = torch.from_numpy(one.tokens.astype("int64"))
    logits = model(input_ids=tokens[None, :-1]).logits[0]
    return torch.log(logits.exp() / logits.exp().sum(-1, keepdim=True)), tokens[1:], torch.from_numpy(one.weights)


def test_counted_by_samples_every_conversation_counts_alike() -> None:
    model = build_model().double()
    wanted = 0.0
    for one in SAMPLES:
        logp, labels, weights = log_probabilities(model, one)
        nll = -logp[torch.arange(len(labels)), labels]
        wanted += float((weights * nll).sum() / weights.sum())
    stage = sft(counted="samples")
    output = stage.loss(packed(), Models(model))
    assert output.total.item() == pytest.approx(wanted, rel=1e-6)
    assert output.weight == pytest.approx(3.0)
    assert stage.weight(packed()) == pytest.approx(3.0)


def test_label_smoothing_spreads_the_target_and_nll_stays_plain() -> None:
    model = build_model().double()
    smoothed = plain = 0.0
    for one in SAMPLES:
        logp, labels, weights = log_probabilities(model, one)
        nll = -logp[torch.arange(len(labels)), labels]
        plain += float((weights * nll).sum())
        smoothed += float((weights * (0.8 * nll - 0.2 * logp.mean(-1))).sum())
    output = sft(label_smoothing=0.2).loss(packed(), Models(model))
    assert output.total.item() == pytest.approx(smoothed, rel=1e-6)
    assert output.metrics["nll"].total == pytest.approx(plain, rel=1e-6)


def test_a_teacher_is_mixed_in_by_its_divergence() -> None:
    model, teacher = build_model().double(), build_model(seed=1).double()
    wanted = 0.0
    for one in SAMPLES:
        logp, labels, weights = log_probabilities(model, one)
        taught, _, _ = log_probabilities(teacher, one)
        nll = -logp[torch.arange(len(labels)), labels]
        divergence = (taught.exp() * (taught - logp)).sum(-1)
        wanted += float((weights * (0.25 * nll + 0.75 * divergence)).sum())
    output = sft(teacher="somewhere", teacher_weight=0.75).loss(packed(), Models(model, teacher))
    assert output.total.item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("loss", ["dft", "eaft"])
def test_token_weights_scale_the_gradient_only(loss: str) -> None:
    model = build_model().double()
    output = sft(loss=loss).loss(packed(), Models(model))
    plain = sft().loss(packed(), Models(model))
    assert 0 < output.total.item() < plain.total.item()
    assert output.metrics["nll"].total == pytest.approx(plain.total.item(), rel=1e-9)


class TestNoise:
    """NEFTune."""

    def difference(self, alpha: float, *, training: bool) -> torch.Tensor:
        """What an embedding of ones becomes, minus one, [rows, length, width]."""
        model = build_model()
        model.train(training)
        embeddings = model.get_input_embeddings()
        torch.nn.init.ones_(embeddings.weight)
        batch = packed()
        torch.manual_seed(0)
        with noisy_embeddings(model, batch.segments, alpha=alpha):
            noisy: torch.Tensor = embeddings(batch.tokens)
        return noisy.detach() - 1

    def test_every_sample_gets_noise_of_its_own_size(self) -> None:
        noise, segments = self.difference(5.0, training=True), packed().segments
        for row, segment, one in ((0, 1, SAMPLES[0]), (0, 2, SAMPLES[1]), (1, 1, SAMPLES[2])):
            bound = 5.0 / (len(one) * noise.shape[-1]) ** 0.5
            mine = noise[row][segments[row] == segment]
            assert mine.abs().max() <= bound * 1.001
            assert mine.abs().mean() == pytest.approx(bound / 2, rel=0.1)
        assert not noise[segments == 0].any()

    def test_none_outside_training_and_none_at_zero(self) -> None:
        assert not self.difference(5.0, training=False).any()
        assert not self.difference(0.0, training=True).any()

    def test_the_loss_sees_it(self) -> None:
        model = build_model().train()
        torch.manual_seed(0)
        noisy = sft(neftune_alpha=5.0).loss(packed(), Models(model)).total.item()
        assert noisy != pytest.approx(sft().loss(packed(), Models(model)).total.item(), rel=1e-4)
