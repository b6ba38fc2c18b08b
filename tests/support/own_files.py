"""A federation in this process whose machines have files of their own, as a deployment has them."""

import json
from contextlib import closing
from pathlib import Path

from flwr.app import Context, MessageType, RecordDict

from fedsel_app import flower_client
from fedsel_app.messages.instructions import EnrolInstruction
from fedsel_app.messages.records import fedsel_config
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import make_strategy, open_run_folder
from strategies.round.flower_grid import FlowerGrid
from strategies.run_round import run_rounds
from tests.support.in_process_grid import InProcessGrid

PLAIN = {
    "strategy": "full",
    "model": "logistic",
    "rounds": 1,
    "local-epochs": 1,
    "local-steps": 0,
    "momentum": 0.0,
    "clip-norm": 0.0,
    "max-update-norm": 0.0,
    "batch-size": 10_000,
    "lr": 0.5,
    "lr-decay": 0.0,
    "solver": "sgd",
    "compressor": "none",
    "server-optimizer": "mean",
    "weighting": "examples",
    "connect-timeout-s": 1,
    "device": "cpu",
    "eval-threads": 1,
}
"""One step of SGD on all examples of each client, averaged by their numbers: a step on the pooled examples."""


def nodes(folder: Path, *paths: Path, **own):
    """Node configurations of clients with data of their own, and other settings by their names (_ for -)."""
    shared = {key.replace("_", "-"): value for key, value in own.items()} | {"state-dir": str(folder / "states")}
    return [
        {"partition-id": client, "num-partitions": len(paths), "data-path": str(path), **shared}
        for client, path in enumerate(paths)
    ]


def run(folder: Path, node_configs, run_id=1, on_round=None, **settings):
    """Deploy a run in this process. Returns its strategy, its rows, and the instructions to enrol that it sent."""
    clients, named = len(node_configs), {key.replace("_", "-"): value for key, value in settings.items()}
    config = resolve({"clients": clients, "cohort": clients, "out": str(folder / "run")} | PLAIN | named)
    contexts = {
        number: Context(run_id, number, dict(node), RecordDict(), config.values())
        for number, node in enumerate(node_configs, 1)
    }
    grid = InProcessGrid(flower_client.app, contexts)
    with closing(open_run_folder(config, on_round)) as recorder:
        strategy = make_strategy(config, recorder)
        run_rounds(strategy, FlowerGrid(grid))
    asked = [message for message in grid.pushed if message.metadata.message_type == MessageType.QUERY]
    return strategy, recorder.rows, [EnrolInstruction.from_config(fedsel_config(each.content)) for each in asked]


def refusals(folder: Path, run: str = "run"):
    """Why clients were left out of the run."""
    rows = [json.loads(line) for line in (folder / run / "clients.jsonl").read_text().splitlines()]
    return [row["outcome"] for row in rows if "outcome" in row]
