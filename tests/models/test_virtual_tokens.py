"""Virtual tokens before every sample: packed samples answer and learn as if alone, in any family, and nobody sees them."""

from __future__ import annotations

import pytest
import torch
from tests.models.families import build_family

from cairn.adapters.soft_prompts import prompt_width
from cairn.errors import ModelError
from cairn.losses.cross_entropy import token_nll
from cairn.models.attention import forward_inputs
from cairn.models.forward import logits_at
from cairn.models.head import losses_at
from cairn.models.virtual_tokens import Fixed, Prompted, laid_out

pytestmark = pytest.mark.slow

SEGMENTS = torch.tensor([[1] * 5 + [2] * 7 + [3] + [4] * 3, [1] * 6 + [2] * 6 + [0] * 4])
POSITIONS = torch.tensor([[*range(5), *range(7), 0, *range(3)], [*range(6), *range(6), 0, 0, 0, 0]])
TOKENS = torch.randint(3, 90, (2, 16), generator=torch.Generator().manual_seed(1))
COUNT = 3


def prompted(family: str, *, into_keys: bool, attention: str = "sdpa", count: int = COUNT) -> Prompted:
    model = build_family(family, attn_implementation=attention).requires_grad_(False)
    width = prompt_width(model, into_keys=into_keys)
    values = 0.3 * torch.randn(count, width, generator=torch.Generator().manual_seed(2))
    return Prompted(model, Fixed(values), count=count, into_keys=into_keys).eval()


def test_placeholders_stand_before_each_segment_that_goes_on_from_none():
    segments = torch.tensor([[1, 1, 2, 3, 3, 0], [1, 1, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]])
    prefixes = torch.tensor([[0, 0, 1, 0, 0, 0], [0] * 6])
    tokens = torch.arange(1, 13).view(2, 6)
    found = laid_out(tokens, segments, positions, prefixes, 2)
    assert found.tokens.tolist() == [[0, 0, 1, 2, 3, 0, 0, 4, 5, 6], [0, 0, 7, 8, 9, 10, 11, 12, 0, 0]]
    assert found.segments.tolist() == [[1, 1, 1, 1, 2, 3, 3, 3, 3, 0], [1] * 8 + [0, 0]]
    assert found.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 5, 6, 7, 0, 0]]
    assert found.prefixes is not None
    assert found.prefixes.tolist() == [[0, 0, 0, 0, 1, 0, 0, 0, 0, 0], [0] * 10]
    assert found.tokens.flatten()[found.places].tolist() == tokens.tolist()
    assert found.virtual.tolist() == [[0, 1], [5, 6], [10, 11]]


@pytest.mark.parametrize("into_keys", [False, True])
@pytest.mark.parametrize(
    ("family", "attention"), [("llama", "sdpa"), ("gpt2", "eager"), ("gemma2", "eager"), ("mistral", "sdpa")]
)
def test_a_packed_sample_answers_and_learns_as_if_alone(family, attention, into_keys):
    model = prompted(family, into_keys=into_keys, attention=attention)
    (vectors,) = model.prompt.parameters()
    labels = TOKENS.roll(-1, 1).flatten()
    wanted = torch.cat([torch.arange(0, 16), torch.arange(16, 28)])
    inputs = forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)
    packed = logits_at(model, inputs, wanted)
    losses_at(model, inputs, wanted, labels[wanted], token_nll).sum().backward()
    learned, vectors.grad = vectors.grad, None
    for row in range(2):
        for segment in range(1, int(SEGMENTS[row].max()) + 1):
            columns = (SEGMENTS[row] == segment).nonzero().flatten()
            alone = model(input_ids=TOKENS[row, columns][None]).logits[0]
            torch.testing.assert_close(packed[16 * row + columns], alone, rtol=1e-4, atol=1e-5)
            token_nll(alone, labels[16 * row + columns]).sum().backward()
    torch.testing.assert_close(learned, vectors.grad, rtol=1e-4, atol=1e-5)
    assert float(learned.abs().max()) > 1e-3
    assert all(parameter.grad is None for parameter in model.get_base_model().parameters())


def test_answers_that_share_a_prompt_see_its_virtual_tokens():
    model = prompted("llama", into_keys=False)
    tokens = TOKENS[:1, :12]
    segments = torch.tensor([[1] * 4 + [2] * 4 + [3] * 4])
    positions = torch.tensor([[*range(4), *range(4, 8), *range(4, 8)]])
    prefixes = torch.tensor([[0] * 4 + [1] * 8])
    inputs = forward_inputs(tokens, segments, positions, model, prefixes=prefixes)
    with torch.no_grad():
        found = logits_at(model, inputs, torch.arange(12))
        for answer in (slice(4, 8), slice(8, 12)):
            alone = model(input_ids=torch.cat([tokens[:, :4], tokens[:, answer]], 1)).logits[0, 4:]
            torch.testing.assert_close(found[answer], alone, rtol=1e-4, atol=1e-5)


def test_checkpointing_gives_the_same_gradient_and_is_refused_for_keys():
    found = []
    for again in (False, True):
        model = prompted("llama", into_keys=False)
        if again:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()(input_ids=TOKENS).logits.square().mean().backward()
        found.append(next(model.prompt.parameters()).grad)
    torch.testing.assert_close(*found)
    with pytest.raises(ModelError, match="does not go with gradient checkpointing"):
        prompted("llama", into_keys=True).gradient_checkpointing_enable()


def test_a_window_without_room_for_them_is_said():
    model = prompted("gpt2", into_keys=False, attention="eager")
    limit = model.config.n_positions
    with pytest.raises(ModelError, match=f"window of at most {limit - COUNT} tokens"):
        model(input_ids=torch.zeros(1, limit - COUNT + 1, dtype=torch.long))
