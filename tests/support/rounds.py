"""Rounds of a strategy by `run_round` and by Flower's legacy server, and the rows of a run folder."""

import json
from pathlib import Path
from typing import Any

from flwr.common import parameters_to_ndarrays
from flwr.server import Server

from strategies.run_round import run_round as carry_out_round
from tests.support.proxies import manager_of


def run_round(strategy, proxies):
    """Row of a run of one round, and arrays of the final model."""
    return run_rounds(strategy, manager_of(proxies), 1)


def run_rounds(strategy, manager, rounds, before=lambda number: None):
    """The rows of the next `rounds` of a run with the clients of `manager`, and the final model's arrays.

    `before` is called with the number of each round before it begins.
    """
    run, federation = strategy.run, strategy.federation(manager)
    for number in range(run.completed + 1, run.completed + rounds + 1):
        before(number)
        if not run.ended:
            carry_out_round(strategy, federation, number)
    return strategy.context.recorder.rows, [array for array in run.model if array.size]


def run_by_flower(strategy, manager, rounds):
    """The same under the loop of Flower's legacy server, which calls the two halves of a round."""
    server = Server(client_manager=manager, strategy=strategy)
    server.fit(rounds, timeout=None)
    return strategy.context.recorder.rows, parameters_to_ndarrays(server.parameters)


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


def without_wall(rows):
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in rows]


def bits(arrays):
    """Bytes of each array, to compare models exactly."""
    return [array.tobytes() for array in arrays]
