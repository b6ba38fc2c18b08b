"""State files: the arrays of a model by their names, as `module.state_dict()` has them. Reading one executes nothing.

The ending of a file's name gives its format.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import described
from fedsel_app.messages.reported_values import one_line
from fedsel_app.models.flat_model import FlatModel
from fedsel_app.models.module_state import COUNTER
from fedsel_app.npz import NpzError, read_arrays
from fedsel_app.records.files import whole_file

PICKLED = (".pt", ".pth", ".bin")
"""Endings of a state dict that torch.save wrote."""
FORMATS = (".safetensors", ".npz", *PICKLED)
OF_RUN = dict.fromkeys(("parameters", "buffers")).keys()
"""Arrays of the file model.npz of a run folder, which have no names."""
WRAPPER = "module."
"""Prefix that DataParallel puts before each name."""
SAME = 1e-5
"""Largest relative difference of an entry that is never sent."""
SAFE_TORCH = (2, 6)
"""Oldest release of torch whose `weights_only` executes nothing (CVE-2025-32434)."""

NamedTensors = dict[str, Tensor]


def load_initial(model: FlatModel, path: Path) -> None:
    """Load the arrays of a state file, or the model of a run, into the parameters and the buffers of a model.

    Counters are ignored. Of tied arrays one is enough. If each name begins with "module." and the rest is the model's
    name, the prefix is left out.

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
    tensors = {name: tensor for name, tensor in _unwrapped(state, targets).items() if not _is_counter(name)}
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
    """The arrays of a state file by name. Raises ConfigError if it cannot be read or holds anything else."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"The 'initial-model' parameter must end with {', '.join(FORMATS)}. Got {str(path)!r}.")
    if path.suffix in PICKLED and tuple(map(int, torch.__version__.split(".")[:2])) < SAFE_TORCH:
        raise ConfigError(
            f"Install torch {'.'.join(map(str, SAFE_TORCH))} or newer, or save {path} as .safetensors or .npz: this "
            "torch may execute code of the file."
        )
    if path.exists() and not path.is_file():
        raise ConfigError(f"The 'initial-model' parameter must name a file. {path} is none.")
    try:
        state = _read(path)
    except FileNotFoundError as error:
        raise ConfigError(f"The 'initial-model' parameter names {path}, which does not exist.") from error
    except (NpzError, OSError) as error:
        raise ConfigError(f"The 'initial-model' {path} cannot be read: {error}.") from error
    except Exception as error:  # torch and safetensors raise many kinds of exceptions for damaged files
        if type(error).__name__ == "UnpicklingError":
            raise ConfigError(
                f"Save the state dict alone, as model.state_dict() returns it: {path} holds Python objects."
            ) from error
        raise ConfigError(f"The 'initial-model' {path} cannot be read: {one_line(described(error))}.") from error
    entries: Mapping[str, Any] = state if isinstance(state, Mapping) else {type(state).__name__: None}
    plain = {
        name: each
        for name, each in entries.items()
        if isinstance(each, Tensor) and each.layout == torch.strided and not each.is_quantized
    }
    if others := [str(name) for name in entries if name not in plain]:
        raise ConfigError(
            f"Save the state dict alone, as model.state_dict() returns it: {path} holds {one_line(', '.join(others))}."
        )
    return plain


def write_state(path: Path, module: nn.Module) -> None:
    """Write the state dict of a module to a file. Raises ConfigError if the ending of its name is none of `FORMATS`."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"The file of a model must end with {', '.join(FORMATS)}. Got {str(path)!r}.")
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _state(module).items()}
    with whole_file(path) as file:
        if path.suffix == ".safetensors":
            from safetensors.torch import save

            file.write(save(state, {"format": "pt"}))
        elif path.suffix == ".npz":
            arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in state.items()}
            np.savez(file, **arrays)
        else:
            torch.save(state, file)


def _read(path: Path) -> object:
    if path.suffix == ".npz":
        with path.open("rb") as file:
            return {name: torch.from_numpy(array) for name, array in read_arrays(file).items()}
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _state(module: nn.Module) -> NamedTensors:
    """The module's own tensors, not copies, by the names of its state dict. Tied ones have several names."""
    state = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}


def _unwrapped(arrays: NamedTensors, targets: Mapping[str, Tensor]) -> NamedTensors:
    """The arrays without DataParallel's prefix, if all of them have it and the model has exactly the other names."""
    names = {name.removeprefix(WRAPPER) for name in arrays}
    wrapped = all(name.startswith(WRAPPER) for name in arrays) and names == targets.keys()
    return {name.removeprefix(WRAPPER): tensor for name, tensor in arrays.items()} if wrapped else arrays


def _is_counter(name: str) -> bool:
    return name.split(".")[-1] == COUNTER


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    kind = "complex" if tensor.is_complex() else "floats" if tensor.is_floating_point() else "whole numbers"
    return tuple(tensor.shape), kind


def _same(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first.to(second), second, rtol=SAME, atol=0.0, equal_nan=True)
