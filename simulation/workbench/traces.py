"""Traces of real devices, converted once for the clock.

FLASH (C. Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data",
WWW 2021) has a JSON file of devices with lines of times and states. Its `Timer` (models/timer.py of
github.com/PKU-Chengxu/FLASH) is followed: a device is available while it is locked, charged and on Wi-Fi, a stay that
the trace does not end is left out, and so is a device with a line that cannot be read.

FedScale (F. Lai et al., ICML 2022) has two pickled dictionaries: `client_behave_trace` with the times at which devices
become active and inactive, and `client_device_capacity` with their speeds. Its `ClientMetadata`
(fedscale/cloud/internal/client_metadata.py of github.com/SymbioticLab/FedScale) is followed: the i-th stay is from the
i-th time in `active` to the i-th in `inactive`, and times beyond `finish_time` are never reached.

Deviations
----------
- A kbit has 1,000 bits. FedScale's aggregator counts 1,024.
- A time at which a stay ends is not part of it. Both papers' codes count it.
- The lines of a device of FLASH are read in the order of their times. FLASH reads them as they stand.
"""

import csv
import io
import json
import pickle
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import starmap
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedsel_app.config import ConfigError
from fedsel_app.network.availability import check_stays
from fedsel_app.network.links import COLUMNS
from fedsel_app.records.files import RecordError, write_arrays

REFERENCE = datetime(2020, 1, 2)
"""Time 0 of FLASH's traces."""
STATES = {
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
    "battery_charged_on": ("charged", True),
    "battery_charged_off": ("charged", False),
    "wifi": ("wifi", True),
} | dict.fromkeys(("unknown", "2g", "3g", "4g", "5g"), ("wifi", False))
"""State in FLASH's trace -> what it says of the device; other states say nothing of its availability."""
TRAINING_FACTOR = 3.0
"""Time of a training step over that of a forward pass (FedScale)."""
KINDS = (
    "a JSON file of FLASH (device -> {'messages': ...}), or one of FedScale's pickles: client_behave_trace or "
    "client_device_capacity"
)

UNREADABLE = (
    *(ValueError, LookupError, TypeError, AttributeError, EOFError, ArithmeticError, pickle.UnpicklingError),
    *(MemoryError, RecursionError),
)
"""Errors of `json` and `pickle` for damaged files, and of what is no trace."""


class Device(NamedTuple):
    """Stays of a device: pairs of begin and end in seconds, ascending, and the period after which they repeat."""

    stays: list[tuple[float, float]]
    period_s: float


class PlainUnpickler(pickle.Unpickler):
    """Unpickler of dictionaries, lists, numbers and text. It imports nothing, so that it runs no code of a file."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Refuse every object that must be imported."""
        raise pickle.UnpicklingError(f"it contains {module_name}.{global_name}, not only numbers and text")


def convert(path: Path, out: Path, batch_size: int) -> str:
    """Convert a trace to `out`: .npz for `availability-trace`, or .csv for `spread-table`. Returns what it contains.

    Raises ConfigError if the file is no such trace, or `out` exists or cannot be written.
    """
    if out.exists():
        raise ConfigError(f"Choose another --out: {out} exists.")
    try:
        content = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise ConfigError(f"Give {KINDS}. {path} cannot be read ({error.strerror}).") from error
    try:
        entries = parse_trace(content)
        if not (isinstance(entries, dict) and entries and all(isinstance(entry, dict) for entry in entries.values())):
            raise ValueError("it is not a dictionary of devices")
        if all("computation" in entry for entry in entries.values()):
            return _write_table(out, entries.values(), batch_size)
        flash = all("messages" in entry for entry in entries.values())
        devices = [(flash_device if flash else fedscale_device)(entry) for entry in entries.values()]
        return _write_stays(out, devices)
    except UNREADABLE as error:
        raise ConfigError(f"Give {KINDS}. {path} cannot be read ({error!r}).") from error
    except (OSError, RecordError) as error:
        raise ConfigError(f"Choose another --out, in a folder that exists: {out} cannot be written.") from error


def parse_trace(content: bytes) -> Any:
    """The dictionary in a JSON file or in a pickle."""
    return json.loads(content) if content.lstrip()[:1] in (b"{", b"") else PlainUnpickler(io.BytesIO(content)).load()


def flash_device(entry: Mapping[str, Any]) -> Device:
    """Stays of a device of FLASH, none if a line cannot be read. Its trace repeats from its first to its last line."""
    messages = entry["messages"]
    text = messages if isinstance(messages, str) else "\n".join(messages)
    try:
        lines = sorted(map(flash_line, filter(None, map(str.strip, text.splitlines()))), key=itemgetter(0))
    except ValueError:
        return Device([], 0.0)
    state = dict.fromkeys(("locked", "charged", "wifi"), False)
    stays, begun_s = list[tuple[float, float]](), None
    for time_s, word in lines:
        if fact := STATES.get(word):
            state[fact[0]] = fact[1]
        if all(state.values()):
            begun_s = time_s if begun_s is None else begun_s
        elif begun_s is not None:
            stays.append((begun_s, time_s))
            begun_s = None
    period_s = lines[-1][0] - lines[0][0] if lines else 0.0
    return Device(list(wrapped(stays, period_s)), period_s)


def flash_line(line: str) -> tuple[float, str]:
    """Time and state of a line of FLASH. Raises ValueError if it has anything else."""
    when, state = line.split("\t")
    return (datetime.strptime(when.strip(), "%Y-%m-%d %H:%M:%S") - REFERENCE).total_seconds(), state.strip().lower()


def fedscale_device(entry: Mapping[str, Any]) -> Device:
    """Stays of a device of FedScale. Its trace repeats after `finish_time`."""
    period_s = float(entry["finish_time"])
    times = zip(map(float, entry["active"]), map(float, entry["inactive"]), strict=False)
    stays = ((begun_s, min(end_s, period_s)) for begun_s, end_s in times)
    return Device(list(wrapped(stays, period_s)), period_s)


def wrapped(stays: Iterable[tuple[float, float]], period_s: float) -> Iterator[tuple[float, float]]:
    """The stays within a period from 0 on: ascending, and united if they touch."""
    parts = list[tuple[float, float]]()
    for begun_s, end_s in stays:
        if end_s <= begun_s or period_s <= 0.0:
            continue
        begun, length = begun_s % period_s, min(end_s - begun_s, period_s)
        parts.append((begun, min(begun + length, period_s)))
        if begun + length > period_s:
            parts.append((0.0, begun + length - period_s))
    united = list[tuple[float, float]]()
    for begun_s, end_s in sorted(parts):
        if united and begun_s <= united[-1][1]:
            united[-1] = united[-1][0], max(end_s, united[-1][1])
        else:
            united.append((begun_s, end_s))
    yield from united


def _write_stays(out: Path, devices: list[Device]) -> str:
    """Write the devices that are ever available."""
    usable = [device for device in devices if device.stays]
    if not usable:
        raise ValueError("no device is ever available")
    stays = np.array([stay for device in usable for stay in device.stays], np.float64).reshape(-1, 2)
    counts = np.array([len(device.stays) for device in usable], np.int64)
    periods = np.array([device.period_s for device in usable])
    check_stays(stays, counts, periods)
    write_arrays(out, {"starts": stays[:, 0], "ends": stays[:, 1], "devices": counts, "periods": periods})
    there = float(np.diff(stays).sum() / periods.sum())
    return (
        f"{len(usable)} of {len(devices)} devices with {len(stays)} stays; they are available {there:.1%} of the time. "
        f"Use it with --set availability=trace --set availability-trace={out}"
    )


def _write_table(out: Path, entries: Iterable[Mapping[str, Any]], batch_size: int) -> str:
    """Write the speeds of FedScale's devices: milliseconds of a forward pass of an example, and kbit/s of the link."""

    def speeds(computation: float, communication: float) -> tuple[float, float, float]:
        rate = 1e3 * communication
        return rate, rate, TRAINING_FACTOR * batch_size * computation / 1e3

    rows = list(starmap(speeds, ((float(entry["computation"]), float(entry["communication"])) for entry in entries)))
    if not all(0.0 < value < inf for row in rows for value in row):
        raise ValueError("its speeds must be numbers above 0")
    with out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return f"{len(rows)} devices. Use them with --set spread=table --set spread-table={out}"
