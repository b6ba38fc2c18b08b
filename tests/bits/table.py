"""Table of bits: hashes of what each case ends with. It names the machine that wrote it.

On a machine with the same processor and libraries, all hashes of a case must be equal; on any other, those of its
choices. `python -m tests.bits.table` runs every case, or those that are named, and prints what differs from the table;
with `--write` it writes them into the table.
"""

import argparse
import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from fedsel_app.records.schema import ACCURACY, score_name
from fedsel_app.wiring.configuration import resolve
from simulation.apps.client.client_app import client_app
from simulation.apps.server.strategy import strategy
from simulation.engines import inline_engine
from tests.bits.cases import BASE, CASES, OWN_APPS, Settings
from tests.support import own_app
from tests.support.flower_state import become_task
from tests.support.in_process_grid import InProcessGrid
from tests.support.rounds import read_rows

TABLE = Path(__file__).with_name("table.json")
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")
COMMAND = "python -m tests.bits.table --write"
CHOICES = ("round", "cohort", "selected", "aggregated", "unused")
"""Fields of a round that follow from choices among clients."""
NUMBERS = (
    *("kept_fraction", "kept_fractions", "scores", "probe_losses", "uplink_bits_per_s", "weights", "taken"),
    *("fit_losses", "client_updates", "round_s", "uplink_bytes", "uplink_value_bytes", "downlink_bytes"),
    *("probe_bytes", "calibration_bytes", "accuracy", "loss", "client_accuracy", "client_loss", "epsilon"),
)
"""Fields of a round that are computed. The others follow from these, or are sentences and times."""


class Bits(NamedTuple):
    """Hashes of a run: of the clients that it chose, of the numbers of its rounds, and of its final model."""

    choices: str
    numbers: str
    model: str


class Table(NamedTuple):
    """The machine that wrote the hashes, and the hashes of each case."""

    machine: dict[str, str]
    cases: dict[str, Bits]


def text_bits(value: Any) -> str:
    """The first 64 bits of the sha256 of `value` as JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def array_bits(arrays: dict[str, np.ndarray]) -> str:
    """The first 64 bits of the sha256 of names, dtypes, shapes and bytes of arrays, in the order of the names."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def run_bits(folder: Path, model: dict[str, np.ndarray]) -> Bits:
    """The hashes of a run with the records of `folder` and with the final `model`."""
    rows = read_rows(folder)
    failures = [[failure["client"] for failure in row["failures"]] for row in rows]
    choices = text_bits([[[row.get(name) for name in CHOICES] for row in rows], failures])
    named = [(row, {name: name.replace(ACCURACY, score_name(row)) for name in NUMBERS}) for row in rows]
    numbers = text_bits([[row.get(name) for name in names.values()] for row, names in named])
    return Bits(choices, numbers, array_bits(model))


def folder_bits(folder: Path) -> Bits:
    """The hashes of a run folder."""
    with np.load(folder / "model.npz") as arrays:
        return run_bits(folder, dict(arrays))


@contextmanager
def reproducible() -> Iterator[None]:
    """While it lasts: one and the same entropy for the noise of privacy, a Flower task's identity, and no log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", np.random.default_rng(7).bytes)
        become_task(patch)
        logging.disable()
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def case_bits(name: str, folder: Path) -> Bits:
    """The hashes of a case, carried out in this process, which writes into `folder`."""
    with reproducible():
        if name in OWN_APPS:
            return own_app_bits(OWN_APPS[name], folder)
        config = resolve(CASES[name] | {"out": str(folder / "run")})
        return folder_bits(inline_engine.simulate(config, lambda row: None))


def own_app_bits(settings: Settings, folder: Path) -> Bits:
    """The hashes of a run of a user's own Flower app: its rounds, and its final arrays."""
    values = {key.replace("-", "_"): value for key, value in settings.items()}
    run, number = folder / "run", BASE["rounds"]
    built = strategy(values.pop("strategy"), out=str(run), seed=7, **values)
    app = own_app.register(client_app(), [])
    grid = InProcessGrid(app, {90 + client: own_app.node(client, folder) for client in range(own_app.CLIENTS)})
    result = built.start(grid=grid, initial_arrays=own_app.by_name(own_app.model()), num_rounds=number)
    return run_bits(run, {f"{place:02}": array.numpy() for place, array in enumerate(result.arrays.values())})


@cache
def machine() -> dict[str, str]:
    """What the numbers of a run depend on: the processor, the instructions that libraries use on it, and versions."""
    blas = {str(library["architecture"]) for library in threadpool_info() if "architecture" in library}
    return {
        "processor": processor(),
        "torch's CPU capability": torch.backends.cpu.get_cpu_capability(),
        "OpenBLAS's architecture": ", ".join(sorted(blas)),
        **{name: version(name) for name in LIBRARIES},
    }


def processor() -> str:
    """Name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def read_table() -> Table:
    """The table, as it is kept."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    return Table(table["machine"], {name: Bits(*hashes.split()) for name, hashes in table["cases"].items()})


def write_table(table: Table) -> None:
    """Keep the table: a line for each case."""
    cases = {name: " ".join(table.cases[name]) for name in (*CASES, *OWN_APPS) if name in table.cases}
    TABLE.write_text(json.dumps({"machine": table.machine, "cases": cases}, indent=1) + "\n", encoding="utf-8")


def differences(name: str, found: Bits, kept: Table) -> list[str]:
    """Which hashes of the case differ from the table, among those that hold on this machine."""
    compared = Bits._fields if kept.machine == machine() else ("choices",)
    return [part for part in compared if getattr(found, part) != getattr(kept.cases.get(name), part, None)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, and print what differs or write the hashes; 1 where the table has others."""
    parser = argparse.ArgumentParser(prog="python -m tests.bits.table", description="The table of bits.")
    parser.add_argument("names", nargs="*", metavar="CASE", help="cases to run; all unless some are named")
    parser.add_argument("--write", action="store_true", help="write the hashes, instead of comparing them")
    given = parser.parse_args(arguments)
    everything = [*CASES, *OWN_APPS]
    if unknown := sorted({*given.names} - {*everything}):
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(everything)}")
    here, kept, status = machine(), read_table(), 0
    if here != kept.machine:
        sys.stdout.write(f"The table is of {kept.machine}. This machine is {here}: only choices can be compared.\n")
        if given.write:
            kept = Table(here, {})
    for name in given.names or everything:
        with tempfile.TemporaryDirectory() as folder:
            found = case_bits(name, Path(folder))
        if given.write:
            kept.cases[name] = found
            write_table(kept)
        elif others := differences(name, found, kept):
            sys.stdout.write(f"{name}: other {', '.join(others)}\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
