"""Deployment and submission: texts and ports without processes. The slow tests run Flower's processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import make_fedsel_folder
from simulation.engines import processes
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.flower_cli import DeploymentError, environment, submit_to_flower
from simulation.operations.deployment.local_deployment import Deployment, connected, refused
from simulation.operations.guard.command_lines import (
    CONNECTION,
    SUPERNODE_MODULE,
    commands_elsewhere,
    supernode_arguments,
)
from simulation.operations.guard.transport import free_ports
from simulation.operations.machines.folders import FederationFolders, provision
from simulation.workbench.command_line.arguments import parse_setting
from tests.support.processes import FLEET_STARTS, await_text, looks_in_proc, mentioning, until
from tests.support.tiny_app import PROJECT, write_app

NODE_CONFIGS = ["partition-id=0 num-partitions=2", "partition-id=1 num-partitions=2"]

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


def test_environment_puts_this_python_first_and_installs_nothing(tmp_path):
    variables = environment(tmp_path)
    assert variables["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert variables["FLWR_HOME"] == str(tmp_path)
    assert variables["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


def test_commands_elsewhere_are_read_as_they_are_meant_in_a_shell(tmp_path):
    """bash runs the lines with a fake program that prints its arguments."""
    (tmp_path / "fedsel").write_text('#!/bin/sh\necho "$1"; for a in "$@"; do echo "  $a"; done\n')
    (tmp_path / "fedsel").chmod(0o755)
    own, settings = (
        {"data-path": "/it's mine.npz"},
        {"data-name": "it's $HOME", "hetero-select.alpha": 0.5, "shard": True},
    )
    options = {"rounds": 3, "cohort": 1, "strategy": "its:Own"}
    script = "\n".join(commands_elsewhere(2, own, options | settings))
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    calls = done.stdout.splitlines()
    assert [line for line in calls if not line.startswith(" ")] == ["provision", "start", "start", "start", "submit"]
    assert calls.count("  data-path=/it's mine.npz") == 2
    given = [parse_setting(line.strip()) for line in calls[calls.index("submit") :] if "=" in line]
    assert dict(given) == settings
    for option in ("--clients 2", "--rounds 3", "--cohort 1", "--strategy its:Own"):
        name, value = option.split()
        assert calls[calls.index(f"  {name}", calls.index("submit")) + 1] == f"  {value}"


def test_missing_keys_are_told_before_anything_starts(tmp_path):
    """The error names the missing key. A deployment reuses the federation of an earlier deployment in its folder."""
    folder = tmp_path / "processes"
    make_fedsel_folder(folder)
    provision(folder / "federation", ["localhost"], 1, 9092)
    for given, name in (
        (FederationFolders(tmp_path / "absent"), "absent/server"),
        (None, "federation/client-1"),
    ):
        with pytest.raises(ConfigError, match=f"There is no .*{name}"), Deployment(folder, NODE_CONFIGS, given):
            pass
    assert not list((folder / "logs").iterdir())


@pytest.mark.slow
@pytest.mark.e2e
@looks_in_proc
def test_two_supernodes_finish_over_grpc_or_http_and_leave_nothing(tmp_path, tiny_app):
    lines: list[str] = []
    with Deployment(tmp_path / "run", NODE_CONFIGS) as deployment:
        assert len(mentioning(tmp_path)) >= 3
        result = submit_to_flower(
            tiny_app, CONNECTION, {"a.greeting": 'it\'s "me"'}, deployment.flwr_home, None, lines.append
        )
    log = "\n".join(lines)
    assert result.completed, log
    assert result.status == "finished:completed"
    assert 'greeting: it\'s "me"' in log
    assert log.count("received 2 results and 0 failures") == 2
    assert "[0, 1]" in log
    assert FLEET_STARTS in (deployment.logs / "superlink.log").read_text()
    assert not mentioning(tmp_path)
    assert (tiny_app / "pyproject.toml").read_text() == PROJECT + CONFIG


@pytest.mark.slow
@pytest.mark.e2e
@looks_in_proc
def test_strangers_are_refused_and_their_log_says_why(tmp_path):
    """The strangers are SuperNodes with an unregistered key, without a key, and with another trusted authority."""
    other = provision(tmp_path / "other", ["localhost"], 1, 9092)
    with Deployment(tmp_path / "run", NODE_CONFIGS[:1]) as deployment:
        made = deployment.federation
        assert made is not None
        right = supernode_arguments(deployment.fleet, NODE_CONFIGS[1], made.client(0))
        mine, others = (str(federation.client(0) / "key") for federation in (made, other))
        wrong_key = [others if part == mine else part for part in right]
        keyless = [part for part in right if part != mine and "private-key" not in part]
        foreign = supernode_arguments(deployment.fleet, NODE_CONFIGS[1], other.client(0))
        strangers = []
        for port, (name, arguments) in zip(
            free_ports(3), {"wrong": wrong_key, "keyless": keyless, "foreign": foreign}.items(), strict=True
        ):
            log, mark = tmp_path / f"{name}.log", f"{tmp_path}/{name}"
            command = [sys.executable, "-m", SUPERNODE_MODULE, *arguments, "--host", "127.0.0.1", "--port", str(port)]
            home = environment(tmp_path / name)
            strangers.append(deployment._starter.start(name, mark, command, log, tmp_path, home))
        try:
            for stranger in strangers:
                until(lambda log=stranger.log: refused(log), 120, stranger.log)
        finally:
            assert not processes.end(strangers, 5.0)
        said = {child.name: child.log.read_text() for child in strangers}
        assert not any(connected(child.log) for child in strangers)
    assert "Failed to activate SuperNode" in said["wrong"]
    assert "must be registered" in said["keyless"]
    assert "CERTIFICATE_VERIFY_FAILED" in said["foreign"]
    assert not mentioning(tmp_path)


@pytest.mark.slow
@pytest.mark.e2e
@looks_in_proc
def test_failed_runs_and_failed_commands_are_told(tmp_path, tiny_app):
    with Deployment(tmp_path / "run", NODE_CONFIGS[:1]) as deployment:
        result = submit_to_flower(tiny_app, CONNECTION, {"fail": True}, deployment.flwr_home, None, lambda line: None)
        with pytest.raises(DeploymentError, match="flwr run"):
            submit_to_flower(tiny_app, "nowhere", {}, deployment.flwr_home, None, lambda line: None)
    assert not result.completed
    assert result.status == "finished:failed"
    assert not mentioning(tmp_path)


DEPLOY_AND_SUBMIT = """
    import signal, sys
    from pathlib import Path
    from simulation.operations.guard.command_lines import CONNECTION
    from simulation.operations.deployment.local_deployment import Deployment
    from simulation.operations.deployment.flower_cli import submit_to_flower
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("importing done", flush=True)
    with Deployment(Path("run"), ["partition-id=0", "partition-id=1"]) as deployment:
        print("deployed", flush=True)
        home = deployment.flwr_home
        submit_to_flower(Path("app"), CONNECTION, {}, home, None, lambda line: print(line, flush=True))
"""


@pytest.mark.slow
@pytest.mark.e2e
@looks_in_proc
@pytest.mark.parametrize(
    ("number", "moment", "wait_s"),
    [
        (signal.SIGINT, "importing done", 0.5),
        (signal.SIGINT, "[ROUND 1]", 0.5),
        (signal.SIGTERM, "deployed", 0.0),
        (signal.SIGTERM, "importing done", 5.0),
    ],
)
def test_interrupted_parent_takes_everything_along(tmp_path, tiny_app, number, moment, wait_s):
    with (tmp_path / "out.log").open("wb") as output:
        parent = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(DEPLOY_AND_SUBMIT)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(app_folder())},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    await_text(tmp_path / "out.log", moment, 300.0)
    time.sleep(wait_s)
    assert mentioning(tmp_path)
    parent.send_signal(number)
    assert parent.wait(timeout=60) != 0
    assert not mentioning(tmp_path), (tmp_path / "out.log").read_text()
