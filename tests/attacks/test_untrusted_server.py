"""Attacks by the server, or by who poses as it: neither chooses paths or code on a client.

A stranger on the server's machine posted a run to the Control API, and his code ran on all clients.
"""

import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from flwr.common.config import parse_config_args

from clients.state import ClientHistory, StateStore
from fedsel_app.config import ConfigError
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.reported_values import one_line
from fedsel_app.wiring.configuration import known_defaults, resolve
from simulation.engines import processes
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.deployed_run import client_nodes
from simulation.operations.deployment.flower_cli import environment, flwr, node_config_text
from simulation.operations.deployment.local_deployment import Deployment
from simulation.operations.guard.transport import CONNECTION
from strategies.round.instructions import client_run_key
from tests.support.client_messages import node_enrolment
from tests.support.processes import await_that, carried_out, looks_in_proc
from tests.support.rounds import written

pytestmark = pytest.mark.usefixtures("task_identity")
IDENTITY = {"partition-id": 0, "num-partitions": 3}
LOADER = f"{__name__}:load_mine"
calls: list[str] = []


def load_mine(config):
    calls.append(config.data)
    x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2
    return {"x_train": x, "y_train": y, "x_test": x, "y_test": y}


def enrolled(run=None, **node):
    """Answer of a SuperNode's client with this in its node configuration, in a run that sets `run`."""
    keys = {key.replace("_", "-"): value for key, value in node.items()}
    run_config = known_defaults() | {"clients": 3, "cohort": 1} | (run or {})
    return EnrolAnswer.from_properties(node_enrolment(IDENTITY | keys, run_config), 3)


def test_a_server_that_has_another_clients_key_neither_reads_nor_deletes_a_state(tmp_path):
    """Every client of a run knew one key, with which a second server got the residual of any of them."""
    keys = [client_run_key("secret of the first server", client) for client in (0, 1)]
    store, residual = StateStore(tmp_path), {"residual": np.arange(3.0)}
    store.of_run(keys[0]).save(0, 1, residual, ClientHistory())
    others = store.of_run(keys[1])
    asked = ClientHistory(last_instructed=9)
    assert others.recall(0, asked) == ({}, {})
    others.save(0, 9, {}, ClientHistory(last_instructed=9, last_aggregated=9, last_checkpoint=9))
    _, mine = store.of_run(keys[0]).recall(0, asked)
    np.testing.assert_array_equal(mine["residual"], residual["residual"])


CHOICES = {
    "a data path": ({"data": "npz", "data-path": "/etc/passwd"}, "add data-path='...' to its --node-config"),
    "a folder of data": ({"data-path": "/home"}, "'data-path' to '/home'"),
    "a state folder": ({"state-dir": "/home/user"}, "add state-dir='...' to its --node-config"),
    "a loader": ({"data": LOADER}, "code that this client does not allow"),
    "a model": ({"model": "os:system"}, "'model' to 'os:system', code that"),
    "a task": ({"task": "os:system"}, "'task' to 'os:system', code that"),
    "code of Flower's": ({"model": "flwr:main"}, "'model' to 'flwr:main', code that"),
    "a strategy": ({"strategy": "os:system"}, "'strategy' to 'os:system', code that"),
    "a data set of the Hub": ({"data": "hf:someone/people"}, "'hf:someone/people', a data set of the Hub that"),
    "a preset's file": ({"preset": "/etc/own.toml"}, "'preset' to the file '/etc/own.toml'"),
}


@pytest.mark.parametrize(("run", "said"), CHOICES.values(), ids=CHOICES)
def test_a_run_configuration_chooses_neither_paths_nor_code(run, said):
    with pytest.raises(ConfigError) as refused:
        enrolled(run)
    assert said in str(refused.value)
    assert str(refused.value).count("The server sets") == 1
    assert calls == []


@pytest.mark.parametrize("key", ["data-path", "state-dir", "data", "model", "strategy", "preset"])
def test_the_whole_sentence_has_room_in_the_servers_record(key):
    with pytest.raises(ConfigError) as refused:
        enrolled({key: f"{'x' * 1000}:y.toml"})
    flowers = f"Message contains an Error (reason: {type(refused.value)}:<'{refused.value}'>)."
    assert one_line(flowers).endswith(("--node-config.'>).", "--set`).'>).")) or "fedsel submit" in one_line(flowers)


def test_what_the_owner_sets_is_taken_instead(tmp_path):
    arrays = load_mine(resolve({}).data)
    np.savez(tmp_path / "mine.npz", **arrays)
    run = {"data": "npz", "data-path": "/etc/passwd", "state-dir": "/etc", "share-label-counts": True}
    own = {"data_path": str(tmp_path / "mine.npz"), "state_dir": str(tmp_path), "partition": "own"}
    assert enrolled(run, **own).examples == 20
    calls.clear()
    assert enrolled({"data": "os:system"}, data=LOADER, partition="own").examples == 20
    assert calls == [LOADER]


@pytest.mark.parametrize("allowed", [LOADER, f"other:model, {LOADER}", f"other:model {LOADER}"])
def test_code_that_the_owner_allows_is_run(allowed):
    assert enrolled({"data": LOADER, "partition": "own"}, allow_code=allowed).examples == 20
    with pytest.raises(ConfigError, match="code that this client does not allow"):
        enrolled({"data": f"{LOADER}s"}, allow_code=allowed)


@pytest.mark.parametrize(
    "text", ["/data/my file.npz", "/it's", '/a "b" c', "/x=1 y='2'", "/\\n", "/ü\n", 'a=0.5, b="c"']
)
def test_a_node_configuration_is_read_as_it_was_written(text):
    written = node_config_text(1, 3, {"data-path": text, "state-dir": "/s"})
    read = parse_config_args([written])
    assert read == {"partition-id": 1, "num-partitions": 3, "data-path": text, "state-dir": "/s"}


def test_a_deployment_of_one_user_gives_its_clients_what_they_need(tmp_path):
    """Paths and code of `fedsel deploy` are its user's own: they go into the node configurations."""
    config = resolve({"data": LOADER, "model": "os:system", "data-path": "/data", "clients": 2, "cohort": 1})
    first, second = map(parse_config_args, ([text] for text in client_nodes(config, tmp_path)))
    assert first == {
        "partition-id": 0,
        "num-partitions": 2,
        "data-path": "/data",
        "partition": "dirichlet",
        "state-dir": str(tmp_path),
        "allow-code": f"os:system {LOADER}",
    }
    assert second["partition-id"] == 1


@pytest.mark.slow
@pytest.mark.e2e
@looks_in_proc
@pytest.mark.timeout(900)
def test_a_stranger_on_the_machine_gets_nothing_from_a_running_deployment(tmp_path):
    """Another user posts a run to the Control API, over gRPC and HTTP, and seeks tasks and their tokens."""
    out = tmp_path / "run"
    values = {"strategy": "random", "clients": 1, "cohort": 1, "rounds": 3, "local-steps": 3000, "out": str(out)}
    config = resolve(values)
    node = ["partition-id=0 num-partitions=1 state-dir='" + str(tmp_path / "state") + "'"]
    with ThreadPoolExecutor(1) as pool, Deployment(tmp_path / "p", node) as deployment:
        lines: list[str] = []
        home, run = deployment.flwr_home, pool.submit(carried_out, deployment, config, lines)
        await_that(lambda: written(out) >= 1, run)
        address = tomllib.loads((home / "config.toml").read_text())["superlink"][CONNECTION]["address"]
        superlink, *supernodes = deployment._children
        runtime = superlink.command[superlink.command.index("--port") + 1]
        runtimes = [f"127.0.0.1:{port}" for port in (runtime, *listening(*supernodes))]
        arguments = [address, ",".join(runtimes), str(app_folder()), str(deployment.federation.certificate)]
        outcomes = stranger(tmp_path, arguments)
        assert run.result().completed, "\n".join(lines)
        runs = flwr(["list", CONNECTION], environment(home))["runs"]
        own = flwr(["supernode", "list", CONNECTION], environment(home))["nodes"]
    assert len(outcomes) >= 6 + len(runtimes)
    assert {name: said for name, said in outcomes.items() if not said.startswith("refused")} == {}
    assert (len(runs), len(own)) == (1, 1)


def listening(*children):
    """Ports at which processes of a deployment listen."""
    opened = set()
    for pid in processes.running(children):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                opened.add(os.readlink(file))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sorted(int(row[1][-4:], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in opened)


def stranger(folder, arguments):
    """Outcomes of all attempts of another user."""
    command = [sys.executable, "-m", "tests.support.stranger", *arguments]
    variables = environment(folder / "stranger") | {"PYTHONPATH": str(app_folder())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
