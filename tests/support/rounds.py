"""Rounds of a strategy by `run_round`, and the rows of a run folder."""

import json
from pathlib import Path
from typing import Any

from strategies.run_round import run_round as carry_out_round
from tests.support.stubs import StubFederation


def run_round(strategy, clients):
    """Row of a run of one round, and arrays of the final model."""
    return run_rounds(strategy, clients, 1)


def run_rounds(strategy, clients, rounds, before=lambda number: None):
    """The rows of the next `rounds` of a run with stub `clients`, or with a federation, and the final model's arrays.

    `before` is called with the number of each round before it begins.
    """
    run, federation = strategy.run, clients if hasattr(clients, "ask") else StubFederation(clients)
    for number in range(run.completed + 1, run.completed + rounds + 1):
        before(number)
        if not run.ended:
            carry_out_round(strategy, federation, number)
    return strategy.context.recorder.rows, [array for array in run.model if array.size]


def read_rows(folder: Path, name: str = "rounds.jsonl") -> list[dict[str, Any]]:
    """The rows of a file of a run folder, as they are written."""
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def rounds(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run folder without wall times."""
    return without_wall(read_rows(folder))


def written(folder: Path) -> int:
    """Number of recorded rounds; 0 before there is a record."""
    try:
        return (folder / "rounds.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def assert_same(folder: Path, reference: Path) -> None:
    """Two finished runs have the same rounds, without wall times, and the same models to the bit."""
    assert rounds(folder) == rounds(reference)
    for name in ("model.npz", "best-model.npz"):
        assert (folder / name).read_bytes() == (reference / name).read_bytes()


def without_wall(rows):
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in rows]


def bits(arrays):
    """Bytes of each array, to compare models exactly."""
    return [array.tobytes() for array in arrays]
