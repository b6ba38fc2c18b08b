"""Deployment and submission: texts and ports without processes. The slow tests run Flower's processes."""

import sys
from pathlib import Path

import pytest

from simulation.engines import processes
from simulation.operations.deployment.flower_cli import DeploymentError, environment, submit_to_flower
from simulation.operations.deployment.local_deployment import Deployment, connected
from simulation.operations.guard.transport import SUPERNODE_MODULE, free_ports, supernode_arguments
from simulation.operations.machines.folders import make_federation
from tests.support.processes import FLEET_STARTS, looks_in_proc, mentioning, until
from tests.support.tiny_app import PROJECT, write_app

NODE_CONFIGS = ["partition-id=0 num-partitions=2", "partition-id=1 num-partitions=2"]
REFUSED = ("CERTIFICATE_VERIFY_FAILED", "Failed to activate SuperNode", "must be registered", "generator didn't yield")
"""Words in the log of a SuperNode that the SuperLink refuses."""

SERVER_APP = """
from pathlib import Path
import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


def server_fn(context):
    if context.run_config["fail"]:
        raise RuntimeError("the server gave up")
    print("greeting:", context.run_config["a.greeting"], flush=True)
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=2,
        min_available_clients=2,
        initial_parameters=ndarrays_to_parameters([np.zeros(3)]),
        fit_metrics_aggregation_fn=lambda metrics: {"partitions": str(sorted(m["partition"] for _, m in metrics))},
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))


app = ServerApp(server_fn=server_fn)
"""

CLIENT_APP = """
from flwr.client import ClientApp, NumPyClient


class Adder(NumPyClient):
    def __init__(self, partition):
        self.partition = partition

    def fit(self, parameters, config):
        return [parameters[0] + 1.0], 1, {"partition": self.partition}


app = ClientApp(client_fn=lambda context: Adder(context.node_config["partition-id"]).to_client())
"""

CONFIG = 'fail = false\na.greeting = "none"\n'


@pytest.fixture
def tiny_app(tmp_path: Path) -> Path:
    return write_app(tmp_path / "app", CLIENT_APP, SERVER_APP, CONFIG)


@pytest.mark.slow
@pytest.mark.e2e
@looks_in_proc
def test_a_deployment_runs_apps_tells_failures_refuses_strangers_and_leaves_nothing(tmp_path, tiny_app):
    """The strangers are SuperNodes with an unregistered key, without a key, and with another trusted authority."""
    other, lines = make_federation(tmp_path / "other", ["localhost"], 1, 9092), []
    with Deployment(tmp_path / "run", NODE_CONFIGS) as deployment:
        assert len(mentioning(tmp_path)) >= 3
        home, config = deployment.flwr_home, {"a.greeting": 'it\'s "me"'}
        result = submit_to_flower(tiny_app, config, home, lines.append)
        failed = submit_to_flower(tiny_app, {"fail": True}, home, lines.append)
        with pytest.raises(DeploymentError, match="flwr run"):
            submit_to_flower(tiny_app, {"unknown": 1}, home, lines.append)
        logs = refused_strangers(tmp_path, deployment, other)
        assert FLEET_STARTS in (deployment.logs / "superlink.log").read_text()
    log = "\n".join(lines)
    assert result.completed, log
    assert 'greeting: it\'s "me"' in log
    assert log.count("received 2 results and 0 failures") == 2
    assert "[0, 1]" in log
    assert failed.status == "finished:failed"
    assert "Failed to activate SuperNode" in logs["wrong"]
    assert "must be registered" in logs["keyless"]
    assert "CERTIFICATE_VERIFY_FAILED" in logs["foreign"]
    assert (tiny_app / "pyproject.toml").read_text() == PROJECT + CONFIG
    assert not mentioning(tmp_path)


def refused_strangers(folder, deployment, other):
    """Name -> log of SuperNodes that a deployment refuses; `other` is another federation."""
    right = supernode_arguments(deployment.fleet, NODE_CONFIGS[1], deployment.federation.client(0), None)
    key, foreign_key = (str(federation.client(0) / "key") for federation in (deployment.federation, other))
    arguments = {
        "wrong": [foreign_key if part == key else part for part in right],
        "keyless": [part for part in right if part != key and "private-key" not in part],
        "foreign": supernode_arguments(deployment.fleet, NODE_CONFIGS[1], other.client(0), None),
    }
    strangers = []
    for port, (name, words) in zip(free_ports(3), arguments.items(), strict=True):
        command = [sys.executable, "-m", SUPERNODE_MODULE, *words, "--host", "127.0.0.1", "--port", str(port)]
        mark, log, home = f"{folder}/{name}", folder / f"{name}.log", environment(folder / name)
        strangers.append(deployment._starter.start(name, mark, command, log, folder, home))
    try:
        for stranger in strangers:
            until(lambda log=stranger.log: any(words in log.read_text() for words in REFUSED), 120, stranger.log)
    finally:
        assert not processes.end(strangers, 5.0)
    assert not any(connected(child.log) for child in strangers)
    return {child.name: child.log.read_text() for child in strangers}
