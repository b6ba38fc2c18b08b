"""The example app: simulated through `flwr run` and deployed, before and after the lines of fedsel."""

import json
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import tomli_w

from fedsel_app.config import Value
from fedsel_app.records.run_folder import read_rounds
from simulation.engines import processes
from simulation.engines.starter import Starter
from simulation.operations.deployment.flower_cli import environment, submit_to_flower, tool
from simulation.operations.deployment.local_deployment import GRACE_S, Deployment
from simulation.operations.guard.transport import CONNECTION, Endpoints, free_ports
from simulation.workbench.comparison.watch import progress_of_run
from simulation.workbench.report.page import write_report
from tests.support.sources import ROOT

EXAMPLE = ROOT / "examples" / "message-app"
METHODS = ("oort", "power-of-choice", "hetero-select", "fedcg")
UNCHANGED = ("random", "power-of-choice")
CLIENTS = 6


def example(folder: Path, method: str, *, unchanged: bool) -> Path:
    """A copy of the app with a method; if `unchanged`, its client app is that before fedsel, and updates go whole."""
    shutil.copytree(EXAMPLE, folder)
    server = folder / "message_app" / "server_app.py"
    text = server.read_text().replace('"oort"', f'"{method}"')
    if unchanged:
        shutil.copy(folder / "before" / "client_app.py", folder / "message_app" / "client_app.py")
        text = text.replace('compressor="top-k", ', "")
    server.write_text(text)
    return folder


def carry_out(app: Path, home: Path, work: Path) -> Path:
    """Run the app in a folder where its SuperLink stands; the run's own folder."""
    lines: list[str] = []
    settings: Mapping[str, Value] = {"num-server-rounds": 3}
    result = submit_to_flower(app, settings, home, lines.append)
    assert result.completed, "\n".join(lines)
    return work / "runs" / str(result.run_id)


def check(folder: Path, method: str, *, compressed: bool) -> None:
    """Three rounds are on record, and what reads records reads them."""
    rows = read_rounds(folder)
    assert [len(row["aggregated"]) for row in rows] == [2, 2, 2]
    assert rows[-1]["accuracy"] > rows[0]["accuracy"] > 0.1
    size = json.loads((folder / "summary.json").read_text())["model_parameters"]
    if method != "fedcg":  # which sends what the links carry by its deadline, and here that is all
        assert (rows[-1]["uplink_bytes"] < 2 * 4 * size) == compressed
    assert progress_of_run("run", folder).state == "finished"
    page = write_report(folder).read_text()
    assert method in page
    assert "flower-app" in page


@pytest.fixture
def simulating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Working directory of a simulating SuperLink, as `flwr run` starts one but without its 15 seconds for that."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    at = Endpoints(*free_ports(3))
    home = tmp_path / "flower"
    home.mkdir()
    options = {"num-supernodes": CLIENTS, "backend": {"client-resources": {"num-cpus": 1}}}
    link = {"address": f"127.0.0.1:{at.control_port}", "insecure": True, "options": options}
    (home / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: link}}))
    command = [tool("flower-superlink"), "--insecure", "--simulation", *at.arguments]
    log = tmp_path / "superlink.log"
    with Starter() as starter:
        superlink = starter.start("superlink", str(home), command, log, home, environment(home))
        await_port(at.control_port)
        yield home
        assert not processes.end([superlink], GRACE_S)


def await_port(port: int) -> None:
    """Wait until something answers at a port of this machine, a minute or two."""
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.2)
    raise TimeoutError(f"Nothing answers at port {port}.")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize(("methods", "unchanged"), [(METHODS, False), (UNCHANGED, True)])
def test_methods_simulated_through_flwr_run(
    tmp_path: Path, simulating: Path, methods: tuple[str, ...], unchanged: bool
) -> None:
    for method in methods:
        app = example(tmp_path / method, method, unchanged=unchanged)
        folder = carry_out(app, simulating, simulating)
        check(folder, method, compressed=not unchanged)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize(("methods", "unchanged"), [(METHODS, False), (UNCHANGED, True)])
def test_methods_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: tuple[str, ...], unchanged: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    nodes = [f"partition-id={client} num-partitions={CLIENTS}" for client in range(CLIENTS)]
    with Deployment(tmp_path / "processes", nodes) as deployment:
        for method in methods:
            app = example(tmp_path / method, method, unchanged=unchanged)
            folder = carry_out(app, deployment.flwr_home, tmp_path / "processes" / "work")
            check(folder, method, compressed=not unchanged)
