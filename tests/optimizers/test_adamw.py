"""AdamW's update equals the paper's, and only matrices decay."""

from __future__ import annotations

import pytest
import torch

from cairn.optimizers.adamw import AdamW, decay_groups

pytestmark = pytest.mark.unit


def test_two_updates_equal_the_closed_form_in_float64():
    config = AdamW.Config(learning_rate=0.1, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.5)
    matrix = torch.nn.Parameter(torch.tensor([[1.0, -2.0]], dtype=torch.float64))
    vector = torch.nn.Parameter(torch.tensor([3.0], dtype=torch.float64))
    optimizer = AdamW(config).build([("w", matrix), ("b", vector)])
    wanted = {0: matrix.detach().clone(), 1: vector.detach().clone()}
    moments = {i: (torch.zeros_like(p), torch.zeros_like(p)) for i, p in wanted.items()}
    for step in (1, 2):
        for index, (parameter, decay) in enumerate(((matrix, 0.5), (vector, 0.0))):
            parameter.grad = torch.full_like(parameter, 0.3 * step)
            first, second = moments[index]
            first = 0.8 * first + 0.2 * parameter.grad
            second = 0.9 * second + 0.1 * parameter.grad**2
            moments[index] = (first, second)
            update = (first / (1 - 0.8**step)) / ((second / (1 - 0.9**step)).sqrt() + 1e-6)
            wanted[index] = wanted[index] * (1 - 0.1 * decay) - 0.1 * update
        optimizer.step()
        torch.testing.assert_close(matrix.detach(), wanted[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(vector.detach(), wanted[1], rtol=1e-12, atol=1e-12)


def test_empty_groups_are_left_out_and_zero_3_shapes_are_seen():
    taken_apart = torch.nn.Parameter(torch.empty(0))
    taken_apart.ds_shape = torch.Size([4, 4])
    groups = decay_groups([("w", taken_apart)], 0.1)
    assert len(groups) == 1
    assert groups[0]["weight_decay"] == 0.1
