"""State files: the arrays of a model by their names, as `module.state_dict()` has them, in the format safetensors."""

from pathlib import Path

import torch
from torch import Tensor, nn

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import described
from fedsel_app.messages.reported_values import one_line
from fedsel_app.models.flat_model import FlatModel
from fedsel_app.models.module_state import COUNTER
from fedsel_app.records.files import read_arrays, whole_file

ENDING = ".safetensors"
OF_RUN = dict.fromkeys(("parameters", "buffers")).keys()
"""Arrays of the file model.npz of a run folder, which have no names."""
SAME = 1e-5
"""Largest relative difference of an entry that is never sent."""

NamedTensors = dict[str, Tensor]


def load_initial(model: FlatModel, path: Path) -> None:
    """Load the arrays of a state file, or the model of a run, into the parameters and the buffers of a model.

    Counters are ignored. Of tied arrays one is enough.

    Raises ConfigError if the file cannot be read; if arrays are missing, foreign, of another shape or not finite; or if
    it changes arrays that are never sent (see `module_state`), because the clients would keep their own.
    """
    state = read_state(path)
    if state.keys() == OF_RUN:
        parameters, buffers = (state[name].numpy() for name in OF_RUN)
        shapes = (model.size,), model.buffers_vector().shape
        if (parameters.shape, buffers.shape) != shapes:
            raise ConfigError(
                f"Give 'initial-model' a run of this model: {path} has {parameters.size} parameters and {buffers.size} "
                f"entries of buffers, and the model {model.size} and {shapes[1][0]}."
            )
        model.load(parameters, buffers)
        return
    targets = _state(model.module)
    tensors = {name: tensor for name, tensor in state.items() if not _is_counter(name)}
    _refuse_misfit(tensors, targets, path)
    never_sent = {id(targets[name]) for name in model.state.constants if name in targets}
    sent = {name: tensor for name, tensor in tensors.items() if id(targets[name]) not in never_sent}
    if endless := [name for name, tensor in sent.items() if not torch.isfinite(tensor).all()]:
        raise ConfigError(f"Give 'initial-model' finite numbers; {path} has others in {one_line(', '.join(endless))}.")
    if changed := [name for name in tensors.keys() - sent if not _same(tensors[name], targets[name])]:
        raise ConfigError(
            f"Let the function of the model load {path}, on every machine, and leave 'initial-model' out: the file has "
            f"other values of {one_line(', '.join(sorted(changed)))}, which are never sent. The clients would keep "
            "their own."
        )
    with torch.no_grad():
        for name, tensor in sent.items():
            targets[name].copy_(tensor)


def _refuse_misfit(arrays: NamedTensors, targets: NamedTensors, path: Path) -> None:
    """Raise ConfigError unless the `arrays` are those of a model, and equal where the model ties them."""
    tied: dict[int, list[str]] = {}
    for name, tensor in targets.items():
        if not _is_counter(name):
            tied.setdefault(id(tensor), []).append(name)
    held = {names[0]: [name for name in names if name in arrays] for names in tied.values()}
    unlike = [name for name in arrays if name in targets and _kind(arrays[name]) != _kind(targets[name])]
    faults = {
        "lacks": [name for name, names in held.items() if not names],
        "has the unknown": [name for name in arrays if name not in targets],
        "has another shape or type of": [
            f"{name}, {_kind(arrays[name])} for {_kind(targets[name])}" for name in unlike
        ],
    }
    if not any(faults.values()):
        pairs = [(first, name) for first, *names in held.values() for name in names]
        unequal = [f"{first} and {name}" for first, name in pairs if not torch.equal(arrays[first], arrays[name])]
        faults = {"has different values of the tied": unequal}
    clauses = [f"{fault} {one_line(', '.join(names))}" for fault, names in faults.items() if names]
    if clauses:
        raise ConfigError(
            f"Give 'initial-model' a file with the arrays of this model; {path} {', and '.join(clauses)}."
        )


def read_state(path: Path) -> NamedTensors:
    """The arrays of a state file, or of a run's model.npz, by name. Raises ConfigError if it cannot be read."""
    if path.suffix not in (ENDING, ".npz"):
        raise ConfigError(
            f"The 'initial-model' parameter must be a run folder or end with {ENDING}. Got {str(path)!r}."
        )
    if path.exists() and not path.is_file():
        raise ConfigError(f"The 'initial-model' parameter must name a file. {path} is none.")
    try:
        if path.suffix == ENDING:
            from safetensors.torch import load_file

            return load_file(path)
        with path.open("rb") as file:
            arrays = {name: torch.from_numpy(array) for name, array in read_arrays(file).items()}
    except FileNotFoundError as error:
        raise ConfigError(f"The 'initial-model' parameter names {path}, which does not exist.") from error
    except Exception as error:  # safetensors raises many kinds of exceptions for damaged files
        raise ConfigError(f"The 'initial-model' {path} cannot be read: {one_line(described(error))}.") from error
    if arrays.keys() != OF_RUN:
        raise ConfigError(f"Save the state dict as {ENDING}: {path} is not the model.npz of a run.")
    return arrays


def write_state(path: Path, module: nn.Module) -> None:
    """Write the state dict of a module to a file. Raises ConfigError unless its name ends with `ENDING`."""
    if path.suffix != ENDING:
        raise ConfigError(f"The file of a model must end with {ENDING}. Got {str(path)!r}.")
    from safetensors.torch import save

    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _state(module).items()}
    with whole_file(path) as file:
        file.write(save(state, {"format": "pt"}))


def _state(module: nn.Module) -> NamedTensors:
    """The module's own tensors, not copies, by the names of its state dict. Tied ones have several names."""
    state = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}


def _is_counter(name: str) -> bool:
    return name.split(".")[-1] == COUNTER


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    kind = "complex" if tensor.is_complex() else "floats" if tensor.is_floating_point() else "whole numbers"
    return tuple(tensor.shape), kind


def _same(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first.to(second), second, rtol=SAME, atol=0.0, equal_nan=True)
