"""Operations of a forward pass, against those counted by hand."""

import torch
from torch import nn

from fedsel_app.models.cost import forward_flops


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
