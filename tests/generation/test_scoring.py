"""Scoring against plain torch: alone or packed, whatever the batch and the order."""

from __future__ import annotations

import random

import pytest
import torch
from tests.tiny import build_model

from cairn.errors import ModelError
from cairn.generation.scoring import _pack, score

pytestmark = pytest.mark.unit

Windows = list[tuple[list[int], list[int]]]


def make_windows(seed: int = 0, count: int = 12, longest: int = 24) -> Windows:
    rng = random.Random(seed)
    windows: Windows = []
    for _ in range(count):
        inputs = [rng.randrange(256) for _ in range(rng.randint(1, longest))]
        windows.append((inputs, [rng.randrange(256) for _ in range(rng.randint(1, len(inputs)))]))
    return windows


def plain(model: torch.nn.Module, windows: Windows) -> list[list[float]]:
    """Each window alone: the log-softmax of all logits in float64."""
    expected = []
    with torch.no_grad():
        for inputs, targets in windows:
            logits = model(torch.tensor([inputs])).logits[0, -len(targets) :].double()
            log_p = logits.log_softmax(-1)
            expected.append([-log_p[i, target].item() for i, target in enumerate(targets)])
    return expected


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("batch_tokens", [None, 1, 48, 10_000])
def test_packed_windows_equal_lone_ones(attention: str, batch_tokens: int | None) -> None:
    model = build_model(attn_implementation=attention)
    windows = make_windows()
    got = score(model, windows, batch_tokens=batch_tokens)
    for mine, theirs in zip(got, plain(model, windows), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)


def test_a_sliding_window_model_keeps_windows_apart() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=5, initializer_range=0.2,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    windows = make_windows(count=6)
    for mine, theirs in zip(score(model, windows), plain(model, windows), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)


def test_order_does_not_matter() -> None:
    model = build_model()
    windows = make_windows()
    order = list(range(len(windows)))
    random.Random(3).shuffle(order)
    straight = score(model, windows)
    shuffled = score(model, [windows[i] for i in order])
    for place, index in enumerate(order):
        assert shuffled[place] == pytest.approx(straight[index], rel=1e-5)


def test_nothing_and_empty_windows() -> None:
    model = build_model()
    assert score(model, []) == []
    assert score(model, [([1], []), ([1], [2])])[0] == []
    assert len(score(model, [([1], []), ([1], [2])])[1]) == 1


def test_dropout_is_off_and_the_mode_comes_back() -> None:
    model = build_model(attention_dropout=0.9)
    model.train()
    windows = make_windows(count=3)
    first = score(model, windows)
    assert model.training
    assert first == score(model, windows)


def test_an_unknown_token_is_named() -> None:
    with pytest.raises(ModelError, match="token 300, but the model knows only 260"):
        score(build_model(), [([1, 300], [2, 3])])
    with pytest.raises(ModelError, match="token 260"):
        score(build_model(), [([1, 2], [2, 260])])


def test_rows_are_filled_before_new_ones_begin() -> None:
    lengths = [10, 6, 4, 5, 5, 3, 3, 3, 1]
    windows = [([0] * length, [0]) for length in lengths]
    rows = _pack(windows, range(len(windows)), isolated=True)
    assert sorted(index for row in rows for index in row) == list(range(len(windows)))
    assert all(sum(lengths[index] for index in row) == 10 for row in rows)
    assert sorted(_pack(windows, range(9), isolated=False)) == [[index] for index in range(9)]
