"""Arrays of a data set: checks of samples and targets, moments of the samples, and reading an .npz file."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.config.data import MOST_CLASSES, composed
from fedsel_app.config.plugins import described
from fedsel_app.records.files import NpzError, read_arrays

BLOCK_ENTRIES = 2**20
"""Entries that are processed in float64 at a time."""
RESOLUTION = float(np.finfo(np.float32).eps)
"""A deviation of float32 values below this relative size is a rounding error."""
LEVELS = 10
"""Number of values that a feature of more different ones must have in float32."""
MOST_LISTED = 5
"""Largest number of classes that a sentence lists."""
SampleShape = tuple[int, ...] | dict[str, tuple[int, ...]]
"""Shape of one sample, or of each of its arrays by name."""
IGNORED = -100
"""Target of a token that no loss and no score counts, as in torch."""

TARGETS = {
    "classification": "whole numbers of shape (n,)",
    "multi-label": "zeros and ones of shape (n, labels)",
    "regression": "numbers of shape (n,) or (n, outputs)",
    "next-token": f"tokens of shape (n, T): whole numbers below {MOST_CLASSES:,}, and {IGNORED} for padding",
}
"""Task -> what its targets must be."""


def absent(data: str, folder: Path, files: str) -> ConfigError:
    """Build the error for a data set whose files are not in `folder`."""
    return ConfigError(f"The data set '{data}' is absent from '{folder}': put {files} there, or set 'data-path'.")


def refuse_pipes(data: str, paths: Iterable[Path]) -> None:
    """Raise ConfigError for a path that is not a file, such as a pipe: reading a pipe may never end."""
    for path in paths:
        if path.exists() and not path.is_file():
            raise ConfigError(f"The data set '{data}' cannot be read: '{path}' is not a file. Remove it.")


def hidden(path: Path) -> bool:
    """True for a relative path of a file that is no data, such as .ipynb_checkpoints/x.png or __MACOSX/x.png."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def as_array(given: Any, key: str, source: str) -> NDArray[Any]:
    """The values as an array. Raises ConfigError if they are none, or some are masked."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{source} has {key} of which NumPy makes no array: {described(error)}.") from error
    if np.ma.is_masked(given):
        raise ConfigError(f"{source} has masked values in {key}. Fill or remove them.")
    return array


def as_floats(values: NDArray[Any], what: str, source: str) -> NDArray[np.float32]:
    """Numbers (n, ...) as float32.

    Raises ConfigError unless they are finite, and those of a feature differ in float32 as they do here.
    """
    with np.errstate(over="ignore"):
        made = values.astype(np.float32, copy=False)
    # If any value is not finite, an extreme is not finite. The extremes need no array of their own.
    if not (np.isfinite(made.min(initial=0.0)) and np.isfinite(made.max(initial=0.0))):
        raise ConfigError(f"{source} has values in {what} that are not finite as float32. Remove or replace them.")
    if values.dtype.kind != "b" and made.dtype != values.dtype and len(values) >= LEVELS:
        least, most = values.min(axis=0), values.max(axis=0)
        levels = np.float64(most - least) / np.spacing(np.abs(made).max(axis=0))
        if (close := (levels > 0) & (levels < LEVELS)).any():
            one = np.asarray(values[0])[close].flat[0]
            raise ConfigError(
                f"{source} has numbers in {what}, such as {one}, that are nearly the same in float32, which "
                "has seven digits. Subtract a constant from them, or leave them out."
            )
    return made


def check_samples(given: Any, key: str, source: str) -> NDArray[Any]:
    """Check samples and convert them to one layout.

    Images become uint8 (n, C, H, W), finite features float32 (n, ...), as do whole numbers of more than two axes, such
    as those of a scanner. Other whole numbers (n, d) are tokens, int64.
    Several arrays by name become the fields of one structured array (n,), in which numbers are float32 or int64.

    Raises ConfigError, beginning with `source` and with the `key`, if they are of another kind.
    """
    if isinstance(given, Mapping):
        return _named_samples(given, key, source)
    x = as_array(given, key, source)
    if x.ndim >= 2 and 0 in x.shape[1:]:
        raise ConfigError(f"{source} has samples without values: {key} has the shape {x.shape}.")
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[:, None]
    if x.dtype == np.uint8 and x.ndim == 4:
        return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.shape[-1] < x.shape[1] else x
    if np.issubdtype(x.dtype, np.floating) and x.ndim >= 2:
        return as_floats(x, key, source)
    if np.issubdtype(x.dtype, np.integer) and x.dtype != np.uint8 and x.ndim >= 3:
        return as_floats(x, key, source)
    if np.issubdtype(x.dtype, np.integer) and x.dtype not in (np.uint8, np.uint64) and x.ndim == 2:
        return x.astype(np.int64, copy=False)
    raise ConfigError(
        f"{source} has {key} of type {x.dtype} and shape {x.shape}. "
        "It must be uint8 images (n, H, W), (n, H, W, C) or (n, C, H, W), float features (n, d), or tokens: whole "
        "numbers (n, d) of another type."
    )


def _named_samples(arrays: Mapping[str, Any], key: str, source: str) -> NDArray[Any]:
    checked = {}
    for name, given in sorted(arrays.items()):
        title = f"{key}[{name!r}]"
        array = as_array(given, title, source)
        if not array.ndim or array.dtype.kind not in "biuf" or array.dtype == np.uint64:
            raise ConfigError(
                f"{source} has {title} of type {array.dtype} and shape {array.shape}. It must be numbers, not uint64."
            )
        floats = array.dtype.kind == "f"
        checked[str(name)] = as_floats(array, title, source) if floats else array.astype(np.int64, copy=False)
    rows = {len(array) for array in checked.values()}
    if len(rows) != 1:
        counts = ", ".join(map(str, sorted(rows))) or "no"
        raise ConfigError(f"{source} has arrays of {counts} samples in {key}. The numbers must be equal.")
    samples = np.empty(rows.pop(), [(name, array.dtype, array.shape[1:]) for name, array in checked.items()])
    for name, array in checked.items():
        samples[name] = array
    return samples


def check_targets(given: Any, key: str, source: str, task: str) -> NDArray[Any]:
    """Check the `TARGETS` of a task, and convert whole numbers to int64 and all others to float32.

    Raises ConfigError, beginning with `source` and with the `key`, if they are of another kind.
    """
    y, whole = as_array(given, key, source), task in ("classification", "next-token")
    axes = {"classification": (1,), "regression": (1, 2)}.get(task, (2,))
    wrong = y.dtype.kind not in ("iu" if whole else "biuf") or y.ndim not in axes
    if task == "next-token" and not wrong:
        wrong = bool(((y < 0) & (y != IGNORED)).any() or (y >= MOST_CLASSES).any() or (y < 0).all())
    if wrong:
        it = "It" if task == "classification" else f"For {task} it"
        raise ConfigError(f"{source} has {key} of type {y.dtype} and shape {y.shape}. {it} must be {TARGETS[task]}.")
    if task == "multi-label" and not np.isin(y, (0, 1)).all():
        raise ConfigError(
            f"{source} has values in {key} other than 0 and 1. For multi-label, 1 means that the sample has the label."
        )
    if task == "classification" and (y < 0).any():
        raise ConfigError(f"{source} has the negative label {y.min()} in {key}. Labels must count from 0.")
    if task == "classification" and (y >= MOST_CLASSES).any():
        raise ConfigError(f"{source} has the label {y.max()} in {key}. Labels must be below {MOST_CLASSES:,}.")
    return y.astype(np.int64, copy=False) if whole else as_floats(y, key, source)


def check_owners(owners: NDArray[Any], source: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Number the owners of the examples, (n,), from 0 in the order of their names, which are texts or whole numbers.

    Returns the numbers, int64 (n,), and the names. Raises ConfigError, beginning with `source`, for any other kind.
    """
    if owners.dtype.kind == "f" and (owners % 1 == 0).all() and np.abs(owners).max(initial=0) < 2**53:
        owners = owners.astype(np.int64)
    texts = owners.dtype.kind in "US" or (owners.dtype == np.object_ and all(isinstance(each, str) for each in owners))
    if owners.ndim != 1 or not (texts or owners.dtype.kind in "biu"):
        raise ConfigError(
            f"{source} has owners of type {owners.dtype} and shape {owners.shape}. They must be texts or whole numbers "
            "of shape (n,)."
        )
    names, numbers = np.unique(list(map(composed, map(str, owners))) if texts else owners, return_inverse=True)
    return numbers.astype(np.int64), tuple(map(str, names.tolist()))


def has_moments(dtype: np.dtype[Any]) -> bool:
    """True unless samples of this type are whole numbers or several arrays."""
    return dtype in (np.uint8, np.float32)


def sums(x: NDArray[Any]) -> NDArray[np.float64]:
    """Entries of a channel, then the sum of each channel, and its sum of squares: float64 (1 + 2 C,).

    The sums of several parts of a data set add up to those of the whole. Images are not scaled.
    """
    channels = [x[:, channel] for channel in range(x.shape[1])]
    totals = [float(values.sum(dtype=np.float64)) for values in channels]
    return np.array([x[:, 0].size, *totals, *(_squared_deviations(values, np.float64(0)) for values in channels)])


def moments_of_sums(added: NDArray[np.float64], *, images: bool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Moments, as `moments` returns them, from the `sums` of the samples."""
    totals, squares = np.split(added[1:] / added[0], 2)
    deviations = np.sqrt(np.maximum(squares - totals**2, 0.0))
    deviations[deviations <= RESOLUTION * np.abs(totals)] = 0.0
    mean, std = (values / (255.0 if images else 1.0) for values in (totals, deviations))
    return mean.astype(np.float32), np.where(std > 0.0, std, 1.0).astype(np.float32)


def moments(x: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Moments of the samples: mean and standard deviation of each channel, or of each feature of a table, (C,).

    Images are scaled to [0, 1], and their sums are exact. A standard deviation of 0 becomes 1. Whole numbers and
    samples of several arrays have the mean 0 and the standard deviation 1: they are never normalised. So do no samples.
    """
    if not has_moments(x.dtype):
        return np.zeros(1, np.float32), np.ones(1, np.float32)
    if not len(x):
        return np.zeros(x.shape[1], np.float32), np.ones(x.shape[1], np.float32)
    channels = [x[:, channel] for channel in range(x.shape[1])]
    mean, std = np.empty(len(channels)), np.empty(len(channels))
    for channel, values in enumerate(channels):
        if x.dtype == np.uint8:
            total = int(values.sum(dtype=np.uint64))
            squares = int(np.square(values, dtype=np.uint16).sum(dtype=np.uint64))
            mean[channel] = total / values.size / 255.0
            std[channel] = math.sqrt(values.size * squares - total**2) / values.size / 255.0
        else:
            mean[channel] = values.mean(dtype=np.float64)
            deviation = math.sqrt(_squared_deviations(values, mean[channel]) / values.size)
            std[channel] = deviation if deviation > RESOLUTION * abs(mean[channel]) else 0.0
    return mean.astype(np.float32), np.where(std > 0.0, std, 1.0).astype(np.float32)


def _squared_deviations(values: NDArray[Any], mean: np.float64) -> float:
    """Sum of the squared deviations from `mean`, in float64, a block of samples at a time."""
    rows = max(BLOCK_ENTRIES // values[:1].size, 1)
    blocks = (values[start : start + rows] - mean for start in range(0, len(values), rows))
    return math.fsum(float(np.square(block).sum()) for block in blocks)


def read_npz(
    path: Path, source: str, keys: tuple[str, ...], setting_key: str, optional: tuple[str, ...] = ()
) -> dict[str, NDArray[Any]]:
    """Read the `keys` of an .npz file, and the `optional` keys that it has.

    Raises ConfigError, beginning with `source` and with the `setting_key`, if the file is absent or unreadable.
    """
    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise ConfigError(f"{source} {kind}. Set '{setting_key}' to an .npz file with {', '.join(keys)}.")
    try:
        with path.open("rb") as file:
            return read_arrays(file, (*keys, *optional))
    except (NpzError, OSError) as error:
        raise ConfigError(f"{source} cannot be read as an .npz file of plain arrays: {error}.") from error
