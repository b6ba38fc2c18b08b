"""Curvature: the diagonal of the local objective's Hessian by one Hutchinson probe.

C. Bekas, E. Kokiopoulou, Y. Saad: "An estimator for the diagonal of a matrix", Applied Numerical Mathematics 57 (2007):
E[z * (H z)] = diag(H) for z uniform on {-1, 1}^d (HeteRo-Select: Eq. 11). The objective is the one that the client
minimises: the loss and FedProx's term mu/2 ||w - w_global||^2, which adds mu to each entry of the diagonal. This is in
the authors' code but not in the paper. Without this term the entry of a flat coordinate would be divided by almost 0,
and even a tiny entry would be kept.

Deviations: by default the probe z has signs only on the chosen layers and is zero elsewhere. The estimate stays
unbiased, its variance is smaller, and the gradients of the other layers are not needed. The authors' code has signs on
every layer (`details=code`).
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedsel_app.data.inputs import Inputs
from fedsel_app.models.flat_model import FlatModel, dense


def hutchinson_diagonal(
    model: FlatModel,
    layers: Sequence[int],
    x: Inputs,
    y: Tensor,
    rng: np.random.Generator,
    proximal: float = 0.0,
    *,
    training: bool = False,
    signs_on: Sequence[int] | None = None,
) -> dict[int, NDArray[np.float32]]:
    """Estimate diag(H) of the mean loss on one mini-batch and the proximal term, z * (H z), signed.

    The model runs in eval mode (BatchNorm with its running statistics, no dropout), or with `training` in train mode,
    in which dropout draws from torch's generator. Afterwards it is in eval mode, and its parameters, gradient and
    buffers are unchanged. The passes use fp32 for any precision of the model, because a second derivative is a
    difference of small numbers.

    Returns layer number -> float32 array over that layer's slice of the flat vector.

    Parameters
    ----------
    model : the model, with the weights at which to estimate the curvature
    layers : numbers of the layers of `model.layers`
    x, y : the mini-batch, on the model's device
    rng : random generator of the signs z, layer by layer
    proximal : the coefficient mu; 0 without a proximal term
    training : train mode for the passes
    signs_on : numbers of the layers where z has signs, including `layers`; elsewhere z is 0. None: only `layers`
    """
    if training:
        model.state.train()
    else:
        model.module.eval()
    buffers = model.buffers_vector()
    members = _members(model, layers if signs_on is None else signs_on)
    signs = {number: [_signs(parameter, rng) for parameter in members[number]] for number in members}
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels of attention have no second derivative
        loss = model.task.loss(model.full_outputs(x), y)
    gradients = torch.autograd.grad(loss, list(chain(*members.values())), create_graph=True, materialize_grads=True)
    # H z is the gradient of <gradient, z>. `grad_outputs` would make torch import SymPy, which takes a second.
    signed = zip(dense(gradients), chain(*signs.values()), strict=True)
    along = torch.stack([(gradient * z).sum() for gradient, z in signed]).sum()
    chosen = [parameter for number in layers for parameter in members[number]]
    if along.requires_grad:
        curved = iter(dense(torch.autograd.grad(along, chosen, materialize_grads=True)))
    else:  # the gradient is constant, as of an absolute error of a linear model
        curved = map(torch.zeros_like, chosen)
    model.state.set(buffers)
    model.module.eval()
    return {
        number: torch.cat([(z * next(curved) + proximal).detach().flatten() for z in signs[number]]).cpu().numpy()
        for number in layers
    }


def _signs(parameter: Tensor, rng: np.random.Generator) -> Tensor:
    """Entries of -1 or 1, of the parameter's shape and on its device."""
    drawn = rng.choice(np.array([-1.0, 1.0], np.float32), parameter.numel())
    return torch.from_numpy(drawn).to(parameter.device).view_as(parameter)


def _members(model: FlatModel, layers: Sequence[int]) -> dict[int, list[Tensor]]:
    """The parameters of each layer, in the order of the flat vector."""
    starts = np.cumsum([0, *(parameter.numel() for parameter in model.tensors)])[:-1]
    spans = {number: model.layers[number] for number in layers}
    return {
        number: [p for p, start in zip(model.tensors, starts, strict=True) if span.start <= start < span.stop]
        for number, span in spans.items()
    }
