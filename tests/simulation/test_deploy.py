"""Deployment and submission: text and ports without processes; the slow tests run Flower for real."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import tomllib
from pathlib import Path

import pytest

from fedsel_app.config import ConfigError
from simulation.deploy import (
    CONNECTION,
    Deployment,
    app_folder,
    connection_toml,
    equivalent_commands,
    free_ports,
    submit,
)
from simulation.submit import DeploymentError

looks_in_proc = pytest.mark.skipif(sys.platform != "linux", reason="survivors are looked for in /proc")

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

PROJECT = """
[project]
name = "tinyapp"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "tinyapp.server_app:app"
clientapp = "tinyapp.client_app:app"

[tool.flwr.app.config]
fail = false
a.greeting = "none"
"""


@pytest.fixture
def tiny_app(tmp_path: Path) -> Path:
    package = tmp_path / "app" / "tinyapp"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "server_app.py").write_text(SERVER_APP)
    (package / "client_app.py").write_text(CLIENT_APP)
    (tmp_path / "app" / "pyproject.toml").write_text(PROJECT)
    return tmp_path / "app"


def mentioning(folder: Path) -> list[str]:
    """Command lines of the running processes whose command line or environment names `folder`, by /proc."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                command, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command + variables:
                found.append(command.replace(b"\0", b" ").decode())
    return found


def test_connection_is_the_default_one_and_unencrypted():
    assert tomllib.loads(connection_toml("127.0.0.1:9093")) == {
        "superlink": {"default": CONNECTION, CONNECTION: {"address": "127.0.0.1:9093", "insecure": True}}
    }


def test_free_ports_differ_and_can_be_bound():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_equivalent_commands_do_their_part_in_a_shell(tmp_path):
    """The lines run in bash with stand-ins for Flower's programs that print what they were called with."""
    for name in ("flwr", "flower-superlink", "flower-supernode"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$(basename "$0")"; for a in "$@"; do echo "  $a"; done\n')
        (tmp_path / name).chmod(0o755)
    config = {"strategy": "it's $HOME", "hetero-select.alpha": 0.5}
    script = "\n".join(equivalent_commands(NODE_CONFIGS, config, "server.example"))
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    calls = done.stdout.splitlines()
    assert [line for line in calls if not line.startswith(" ")] == [
        "flower-superlink",
        "flower-supernode",
        "flower-supernode",
        "flwr",
    ]
    assert calls.count("  server.example:9092") == 2
    assert all(f"  {node_config}" in calls for node_config in NODE_CONFIGS)
    assert tomllib.loads((tmp_path / ".flwr/remote/run-config.toml").read_text()) == config
    assert tomllib.loads((tmp_path / ".flwr/remote/config.toml").read_text())["superlink"]["default"] == CONNECTION


def test_app_folder_holds_the_project():
    project = tomllib.loads((app_folder() / "pyproject.toml").read_text())
    assert project["project"]["name"] == "fedsel"


def test_app_folder_of_an_installed_wheel_asks_for_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr("simulation.deploy.__file__", str(tmp_path / "simulation" / "deploy.py"))
    with pytest.raises(ConfigError, match="checkout"):
        app_folder()


def test_every_supernode_needs_its_node_configuration(tmp_path):
    with pytest.raises(ConfigError, match="Got 3 SuperNodes and 2 node configurations"):
        Deployment(tmp_path, 3, NODE_CONFIGS)


def await_line(path: Path, text: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while text not in (path.read_text() if path.exists() else ""):
        assert time.monotonic() < deadline, f"no {text!r} in {path}"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.e2e
@looks_in_proc
def test_two_supernodes_finish_over_grpc_and_leave_nothing(tmp_path, tiny_app):
    lines: list[str] = []
    with Deployment(tmp_path / "run", 2, NODE_CONFIGS) as deployment:
        assert len(mentioning(tmp_path)) >= 3
        result = submit(tiny_app, CONNECTION, {"a.greeting": 'it\'s "me"'}, deployment.flwr_home, None, lines.append)
    log = "\n".join(lines)
    assert result.completed, log
    assert result.status == "finished:completed"
    assert 'greeting: it\'s "me"' in log
    assert log.count("received 2 results and 0 failures") == 2
    assert "[0, 1]" in log
    assert "Starting Fleet API (gRPC-rere)" in (deployment.logs / "superlink.log").read_text()
    assert not mentioning(tmp_path)
    assert (tiny_app / "pyproject.toml").read_text() == PROJECT


@pytest.mark.slow
@pytest.mark.e2e
@looks_in_proc
def test_failed_runs_and_failed_commands_are_told(tmp_path, tiny_app):
    with Deployment(tmp_path / "run", 1, NODE_CONFIGS[:1]) as deployment:
        result = submit(tiny_app, CONNECTION, {"fail": True}, deployment.flwr_home, None, lambda line: None)
        with pytest.raises(DeploymentError, match="flwr run"):
            submit(tiny_app, "nowhere", {}, deployment.flwr_home, None, lambda line: None)
    assert not result.completed
    assert result.status == "finished:failed"
    assert not mentioning(tmp_path)


DEPLOY_AND_SUBMIT = """
    import signal, sys
    from pathlib import Path
    from simulation.deploy import CONNECTION, Deployment, submit
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("importing done", flush=True)
    with Deployment(Path("run"), 2, ["partition-id=0", "partition-id=1"]) as deployment:
        print("deployed", flush=True)
        submit(Path("app"), CONNECTION, {}, deployment.flwr_home, None, lambda line: print(line, flush=True))
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
    await_line(tmp_path / "out.log", moment)
    time.sleep(wait_s)
    assert mentioning(tmp_path)
    parent.send_signal(number)
    assert parent.wait(timeout=60) != 0
    assert not mentioning(tmp_path), (tmp_path / "out.log").read_text()
