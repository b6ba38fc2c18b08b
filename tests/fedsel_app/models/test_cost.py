"""Operations of a forward pass and what it keeps for the backward pass, against those counted by hand."""

import torch
from torch import nn

from fedsel_app.models.cost import forward_flops, saved_bytes


def test_a_linear_layer_and_a_convolution_by_hand():
    # 3 filters of 2 x 3 x 3 weights at 4 x 4 places, then 48 x 5 weights: two operations each.
    module = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 5))
    module.train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    for examples in (1, 3):
        assert forward_flops(module, torch.zeros(examples, 2, 4, 4)) == 2 * (3 * 18 * 16 + 48 * 5)
    assert module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert not any(layer._forward_hooks for layer in module.modules())


def test_a_forward_pass_keeps_its_input_and_the_outputs_of_its_relu():
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    for examples in (1, 5):
        assert saved_bytes(module, torch.ones(examples, 3)) == 4 * (3 + 4)
    assert module.training
