"""Table of bits: sha256 of the model and of the rounds of each case, as this machine's numerical libraries give them.

`python -m tests.bits.table` runs every case, or those that are named, and prints what differs from the table; with
`--write` it writes the table.
"""

import argparse
import hashlib
import json
import logging
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage
from threadpoolctl import threadpool_limits
from torch import nn

from clients.selecting import selecting
from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from simulation.flower_app.strategy import strategy
from tests.bits.cases import BASE, CASES, OWN_APPS, Settings
from tests.support import own_app
from tests.support.flower_state import become_task
from tests.support.rounds import rounds

TABLE = Path(__file__).with_name("table.json")
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")
COMMAND = "python -m tests.bits.table --write"
Row = dict[str, str]


def array_bits(arrays: dict[str, np.ndarray]) -> str:
    """Sha256 of the names, dtypes, shapes and bytes of arrays, in the order of the names."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def row_bits(rows: list[dict[str, Any]]) -> str:
    """Sha256 of the rows of rounds.jsonl, without wall times."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def folder_bits(folder: Path) -> Row:
    """The hashes of a run folder."""
    with np.load(folder / "model.npz") as arrays:
        return {"model": array_bits(dict(arrays)), "rounds": row_bits(rounds(folder))}


@contextmanager
def reproducible() -> Iterator[None]:
    """While it lasts: one and the same entropy for the noise of privacy, a Flower task's identity, and no log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", lambda bits: 7)
        become_task(patch)
        logging.disable()
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def case_bits(name: str, folder: Path) -> Row:
    """The hashes of a case, carried out in this process, which writes into `folder`."""
    with reproducible():
        if name in OWN_APPS:
            return own_app_bits(OWN_APPS[name], folder)
        config = resolve(CASES[name] | {"out": str(folder / "run")})
        return folder_bits(inline_engine.simulate(config, lambda row: None, verbose=True))


def own_app_bits(settings: Settings, folder: Path) -> Row:
    """The hashes of a run of a user's own Flower app: its final arrays, and its rounds."""
    values = {key.replace("-", "_"): value for key, value in settings.items()}
    run, number = str(folder / "run"), BASE["rounds"]
    built = strategy(values.pop("strategy"), parameters=own_app.model(), out=run, rounds=number, seed=7, **values)
    arrays = own_app.run_app(built, number, kind=own_app.KnownClient, mods=[selecting], state_dir=folder)
    named = {f"{place:02}": array for place, array in enumerate(arrays)}
    return {"model": array_bits(named), "rounds": row_bits(rounds(folder / "run"))}


def machine() -> dict[str, str]:
    """Versions of the numerical libraries, and a hash of the numbers that they give on this processor."""
    return {name: version(name) for name in LIBRARIES} | {"numbers": _numbers()}


def processor() -> str:
    """Name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _numbers() -> str:
    """Hash of a small training and of a little linear algebra, without any of fedsel's code."""
    rng = np.random.default_rng(7)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2)),
        *(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for size in (32, 32, 19, 7):
        images = torch.from_numpy(rng.normal(size=(size, 1, 8, 8)).astype(np.float32))
        loss = nn.functional.cross_entropy(net(images), torch.from_numpy(rng.integers(10, size=size)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.set_num_threads(threads)
    torch.set_rng_state(state)
    points = rng.normal(size=(40, 650))
    single = points.astype(np.float32)
    arrays = {name: value.numpy() for name, value in net.state_dict().items()}
    with threadpool_limits(limits=1, user_api="blas"):
        arrays |= {"products": points @ points.T, "single": single @ single.T, "linkage": linkage(points, "average")}
        arrays |= {"solved": np.linalg.solve(points @ points.T, points), "singular": np.linalg.svd(points)[1]}
    arrays |= {"exp": np.exp(points), "log": np.log(np.abs(points)), "norms": np.linalg.norm(points, axis=1)}
    return array_bits(arrays | {"sums": points.sum(axis=0), "means": single.mean(axis=1)})


def read_table() -> dict[str, Any]:
    """The table, as it is kept."""
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the cases, and print or write their hashes; 1 where the table has others."""
    parser = argparse.ArgumentParser(prog="python -m tests.bits.table", description="The table of bits.")
    parser.add_argument("names", nargs="*", metavar="CASE", help="cases to run; all unless some are named")
    parser.add_argument("--write", action="store_true", help="write the table, instead of comparing with it")
    given = parser.parse_args(arguments)
    everything = [*CASES, *OWN_APPS]
    if unknown := sorted({*given.names} - {*everything}):
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(everything)}")
    found = {}
    for name in given.names or everything:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = case_bits(name, Path(folder))
    here, kept = machine(), read_table()
    if given.write:
        cases = kept["cases"] | found if here == kept["machine"] else found
        table = {
            "processor": processor(),
            "machine": here,
            "cases": {name: cases[name] for name in everything if name in cases},
        }
        TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        return 0
    if here != kept["machine"]:
        sys.stdout.write("The table is of other numerical libraries, or of a processor of another kind.\n")
    others = [name for name in found if found[name] != kept["cases"].get(name)]
    sys.stdout.writelines(f"{name}: {found[name]}, and in the table {kept['cases'].get(name)}\n" for name in others)
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
