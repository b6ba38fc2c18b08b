"""Files of records and arrays: they are written completely or not at all, and npz files read completely or refused."""

import json
import math
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


class MachineFault(OSError):
    """The machine has too little disk or memory. The message says what to do; the run can be resumed after that."""


FINITE = json.JSONEncoder(allow_nan=False)


class RecordError(MachineFault):
    """A record of a run cannot be written. The message names the file and says what to do."""


class RunFailed(RuntimeError):
    """A run to which no client contributes. The message has the commonest reason."""


def append_rows(file: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append a line for each row. The lines go to the system at once, so after a crash all earlier lines are complete.

    Raises RecordError if the lines cannot be written; an incomplete part of them is removed.
    """
    lines = "".join(_json_line(row) for row in rows).encode()
    path = Path(file.name)
    with record_errors(path):
        if not os.fstat(file.fileno()).st_nlink:
            raise FileNotFoundError("it was removed while the run went on")
        before = os.fstat(file.fileno()).st_size
        try:
            while lines:
                lines = lines[file.write(lines) :]
        except OSError:
            file.truncate(before)
            raise


ZIP = b"PK"
"""First bytes of an npz file."""
PLAIN = "biufcSU"
"""Kinds of dtype of a plain array: numbers and text."""


class NpzError(ValueError):
    """Error for a file that is not an npz archive of plain arrays."""


def read_arrays(file: BinaryIO, names: Container[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays `names` of an npz file, or all.

    Raises NpzError if it is damaged, encrypted or pickled, or contains anything except plain arrays.
    """
    if file.read(len(ZIP)) != ZIP:
        raise NpzError("it is not an npz file, which np.savez writes")
    file.seek(0)
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive if names is None or name in names}
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds of exceptions for damaged archives
        if "pickle" in str(error):
            raise NpzError(
                "it contains Python objects. Save numbers or text, not arrays of the dtype object"
            ) from error
        raise NpzError(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in PLAIN:
            raise NpzError(f"'{name}' is not a plain array")
    return arrays


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an npz file, completely or not at all. Raises RecordError if it cannot be written."""
    named: dict[str, Any] = dict(arrays)
    with record_errors(path), whole_file(path) as file:
        np.savez(file, **named)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, completely or not at all. Raises RecordError if it cannot be written."""
    with record_errors(path):
        write_text(path, json.dumps(json_value(content), indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all. It replaces a symlink at `path`, whose target does not change."""
    with whole_file(path) as file:
        file.write(text.encode())


def _json_line(row: Mapping[str, Any]) -> str:
    try:
        return f"{FINITE.encode(row)}\n"
    except ValueError:
        return f"{json.dumps(json_value(row))}\n"


def json_value(value: Any) -> Any:
    """The value with None (null in JSON) for NaN and infinity, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: json_value(item) for key, item in value.items()}
    return [json_value(item) for item in value] if isinstance(value, list) else value


@contextmanager
def record_errors(path: Path) -> Iterator[None]:
    """Convert an error of the system to a RecordError that names `path`."""
    try:
        yield
    except RecordError:
        raise
    except OSError as error:
        raise RecordError(
            f"{path} cannot be written: {error.strerror or error}. The records so far are complete. Free the disk or "
            f"make the folder writable, then continue with: fedsel run --resume {path.parent}"
        ) from error


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing. It gets its name only after it is closed without an error, completely on disk.

    An error of the system names `path`.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        part.unlink(missing_ok=True)
