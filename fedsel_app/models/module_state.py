"""State of a module by what it is: which tensors travel between server and clients, and which stay as they were built.

======================  ==============================================  ================================================
tensors                 which they are                                  in a run
======================  ==============================================  ================================================
trainable parameters    those with ``requires_grad``                    trained, compressed, averaged by the method
statistics              running means and variances of BatchNorm and    calibrated, or averaged after training
                        InstanceNorm layers that training updates       (`calibration-form`)
changing buffers        other buffers, and frozen parameters, that a    averaged after training
                        training step changes (spectral norm,
                        codebooks, moving averages of inputs or of
                        weights)
counters                ``num_batches_tracked`` of those layers         set for each message
local                   those of the above that `local-layers` or       never sent; kept with the client's state
                        ``calibration-form=local`` names
constants               everything else, and frozen parameters          never sent; compared when a client enrols
attributes              no tensors: a counter of steps, a list          as they were built, for each message
======================  ==============================================  ================================================

A layer's statistics are constants if the layer does not update them: it stays in eval mode, its momentum is 0, or its
``track_running_stats`` is False. Changing buffers of whole numbers are rounded after they are averaged.
"""

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedsel_app.models.constant_marks import Marks, marks_of

COUNTER = "num_batches_tracked"
OWN = vars(nn.Module()).keys()
"""Attributes of every module."""


class Place(NamedTuple):
    """Place of a buffer or of a frozen parameter: the module that owns it, and its name there."""

    owner: nn.Module
    name: str

    @property
    def tensor(self) -> Tensor | None:
        """The buffer as it is now; training may replace it by another tensor."""
        buffers = self.owner._buffers
        return buffers[self.name] if self.name in buffers else self.owner._parameters[self.name]

    def copy(self) -> Tensor | None:
        """A copy of the buffer."""
        return None if self.tensor is None else self.tensor.detach().clone()

    def put(self, value: Tensor | None) -> None:
        """Give the buffer this value, a copy."""
        now = self.tensor
        if now is None or value is None or now.shape != value.shape or now.dtype != value.dtype:
            self.owner._buffers[self.name] = None if value is None else value.clone()
        elif not torch.equal(now, value):
            now.detach().copy_(value)


def buffer_places(module: nn.Module) -> dict[Place, str]:
    """Place of each buffer -> its name in the module. A buffer with several names has one place."""
    places, seen = dict[Place, str](), set[int]()
    for path, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            if buffer is None or id(buffer) not in seen:
                places[Place(owner, name)] = f"{path}.{name}".lstrip(".")
                seen.add(id(buffer))
    return places


def frozen_places(module: nn.Module) -> dict[Place, str]:
    """Place of each parameter that is not trained -> its name in the module, once for each parameter."""
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    return {Place(module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]): name for name in frozen}


def in_float32(module: nn.Module) -> nn.Module:
    """Convert the parameters and buffers of floats to float32; complex ones stay complex."""
    for parameter in module.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    for place in buffer_places(module):
        if place.tensor is not None and place.tensor.is_floating_point():
            place.owner._buffers[place.name] = place.tensor.float()
    return module


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Restore the mode of each module after the block."""
    modes = {each: each.training for each in module.modules()}
    try:
        yield
    finally:
        for each, training in modes.items():
            each.training = training


class Attributes:
    """What the parts of a module keep besides modules and tensors, such as a counter of steps."""

    def __init__(self, module: nn.Module) -> None:
        self._parts = list(module.modules())
        self._shared = {id(each): each for each in (*self._parts, *module.parameters(), *module.buffers())}
        self._names = {part: vars(part).keys() - OWN for part in self._parts}
        self._values = dict[tuple[nn.Module, str], Any]()
        for part, names in self._names.items():
            for name in sorted(names):
                with suppress(Exception):  # of what cannot be copied, such as a lock, nothing is known
                    self._values[part, name] = self._copy(vars(part)[name])

    def keep_changed(self) -> None:
        """Keep only those that differ now, or that were not there."""
        self._names = {part: vars(part).keys() - OWN - names for part, names in self._names.items()}
        self._values = {
            (part, name): value for (part, name), value in self._values.items() if self._differs(part, name)
        }

    def put(self) -> None:
        """Give the parts what they had, copies of it, and take what they did not have."""
        for (part, name), value in self._values.items():
            vars(part)[name] = self._copy(value)
        for part, names in self._names.items():
            for name in names & vars(part).keys():
                del vars(part)[name]

    def _copy(self, value: Any) -> Any:
        return copy.deepcopy(value, dict(self._shared))

    def _differs(self, part: nn.Module, name: str) -> bool:
        before: Any = self._values[part, name]
        now: Any = vars(part).get(name)
        if type(before) is not type(now):
            return True
        if isinstance(before, Tensor):
            return before.shape != now.shape or not torch.equal(before, now)
        try:
            if type(before).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
                before, now = before.__reduce_ex__(4), now.__reduce_ex__(4)
            return not bool(before == now)
        except (TypeError, ValueError, RuntimeError):  # arrays, and what cannot be taken apart
            return True


class ModuleState:
    """The buffers of a module in their roles.

    Parameters
    ----------
    module : a module; if it is in train mode, its parts in eval mode stay in eval mode
    changing : places of the buffers and frozen parameters that training changes (see `module_calls.tried`). They are
        averaged unless they are complex.
    attributes : what else training changes; None: nothing
    stays : function of an array's name and its owner: whether it stays with each client, if training changes it

    Attributes
    ----------
    local : Place -> name of the buffers and frozen parameters that stay with each client
    variances : bool (S,), True for the running variances among the S statistics, which are the first of the B entries
        that travel
    """

    def __init__(
        self,
        module: nn.Module,
        changing: Collection[Place] = (),
        attributes: Attributes | None = None,
        *,
        stays: Callable[[str, nn.Module], bool] = lambda name, owner: False,
    ) -> None:
        self._module, self._attributes = module, attributes
        self._frozen = [each for each in module.modules() if not each.training] if module.training else []
        with modes_kept(module):
            self.train()
            layers = {each for each in module.modules() if isinstance(each, _NormBase) and _updates(each)}
        places = buffer_places(module)
        names = ("running_mean", "running_var")
        statistics = [place for place in places if place.owner in layers and place.name in names]
        counters = [place for place in places if isinstance(place.owner, _NormBase) and place.name == COUNTER]
        named_places = places | frozen_places(module)
        moved = dict.fromkeys([*statistics, *counters, *changing])
        self.local = {place: named_places[place] for place in moved if stays(named_places[place], place.owner)}
        statistics, counters, changing = (
            [place for place in each if place not in self.local] for each in (statistics, counters, changing)
        )
        others = [place for place in changing if place not in {*statistics, *counters}]
        averaged = [place for place in others if place.tensor is not None and not place.tensor.is_complex()]
        self._travelling = statistics + averaged
        self._size = sum(_tensor(place).numel() for place in self._travelling)
        sizes = [_tensor(place).numel() for place in statistics]
        self.variances = np.repeat(np.array([place.name == "running_var" for place in statistics], np.bool_), sizes)
        moving = {*self._travelling, *counters, *self.local}
        self._resting = {place: place.copy() for place in {**places, **dict.fromkeys(changing)} if place not in moving}
        self._counters = [place for place in counters if place.owner in layers and place.tensor is not None]
        frozen = {name: place.tensor for place, name in frozen_places(module).items() if place not in moving}
        resting = {places[place]: value for place, value in self._resting.items() if place in places}
        self._constants = {name: value for name, value in (frozen | resting).items() if value is not None}

    def train(self) -> None:
        """Set train mode, except for the parts that stay in eval mode."""
        self._module.train()
        for each in self._frozen:
            each.training = False

    def vector(self) -> NDArray[np.float32]:
        """The travelling buffers, a copy, float32 (B,)."""
        if not self._travelling:
            return np.zeros(0, np.float32)
        parts = [_tensor(place).detach().reshape(-1).float() for place in self._travelling]
        vector: NDArray[np.float32] = torch.cat(parts).cpu().numpy()
        return vector

    def set(self, vector: NDArray[np.float32], batches: int = 0) -> None:
        """Set the travelling buffers to `vector` (B,), the counters to `batches`, and all others as they were built.

        Raises ValueError if the length of `vector` differs.
        """
        if vector.shape != (self._size,):
            raise ValueError(f"The model's buffers have shape ({self._size},). Got {vector.shape}.")
        sizes = [_tensor(place).numel() for place in self._travelling]
        for place, values in zip(self._travelling, torch.split(torch.tensor(vector), sizes), strict=True):
            buffer = _tensor(place)
            buffer.copy_((values if buffer.is_floating_point() else values.round()).view_as(buffer))
        for place, value in self._resting.items():
            place.put(value)
        for place in self._counters:
            _tensor(place).fill_(batches)
        if self._attributes is not None:
            self._attributes.put()

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the tensors that never travel."""
        return tuple(self._constants)

    @cached_property
    def marks(self) -> Marks:
        """Marks of the tensors that never travel (see `constant_marks`)."""
        return np.array([marks_of(_entries(tensor)) for tensor in self._constants.values()], np.float64).ravel()


def _updates(layer: _NormBase) -> bool:
    """True if the layer, in its present mode, updates its running statistics."""
    return layer.training and layer.track_running_stats and layer.running_mean is not None and layer.momentum != 0.0


def _tensor(place: Place) -> Tensor:
    tensor = place.tensor
    if tensor is None:
        raise ValueError(f"Training removed the buffer '{place.name}', whose values belong to the model.")
    return tensor


def _entries(tensor: Tensor) -> NDArray[np.generic]:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    entries: NDArray[np.generic] = real.detach().cpu().numpy().ravel()
    return entries
