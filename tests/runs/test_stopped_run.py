"""A federation on this machine: a copy of a client is told, a stopped run is resumed, and an old app is refused."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.operations.guard.app_signature import NEWEST
from simulation.operations.guard.transport import free_ports
from simulation.operations.machines.folders import LOG, FederationFolders
from tests.support.processes import until
from tests.support.rounds import read_rows, written

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
FEDSEL = str(Path(sys.executable).parent / "fedsel")
AT_ONCE_S = 60.0
"""Most seconds until a copy is told, of which this machine takes most for the start of Python and Flower."""


class Machines:
    """Processes of `fedsel`, each with its output in a file."""

    def __init__(self, folder: Path) -> None:
        self.federation = FederationFolders(folder / "federation")
        self._folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def begin(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.txt").open("wb") as output:
            process = subprocess.Popen([FEDSEL, *words], cwd=self._folder, stdout=output, stderr=subprocess.STDOUT)
        self.running.append(process)
        return process

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.txt").read_text()

    def ask(self, *words: str) -> str:
        done = subprocess.run([FEDSEL, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    [port] = free_ports(1)
    words = ["--server", "localhost", "--clients", "2", "--port", str(port)]
    made.ask("provision", *words, "--out", str(made.federation.folder))
    try:
        made.begin("server", "start", str(made.federation.server))
        for client in range(2):
            made.begin(f"client-{client}", "start", str(made.federation.client(client)))
        for client in range(2):
            until(lambda client=client: f"as client-{client}." in made.said(f"client-{client}"), 120.0)
        yield made
    finally:
        for process in reversed(made.running):
            process.send_signal(signal.SIGTERM)
        for process in made.running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def test_a_copy_is_told_at_once_and_a_stopped_run_is_resumed(machines: Machines, tmp_path: Path) -> None:
    admin, server = str(machines.federation.admin), machines.federation.server
    copy = tmp_path / "copy"
    shutil.copytree(machines.federation.client(0), copy, ignore=shutil.ignore_patterns("flwr", "log.txt"))
    copied = machines.begin("copy", "start", str(copy))
    until(lambda: "is a copy" in machines.said("copy"), AT_ONCE_S)
    words = ["--cohort", "2", "--rounds", "1000", "--set", "local-steps=1", "--strategy", "random"]
    run = machines.begin("submit", "submit", admin, *words, "--out", "first", "--set", "checkpoint-every=1")
    until(lambda: "round 2 of 1000" in machines.said("submit"), 200.0)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    assert "The run first goes on" in machines.said("submit")
    said = machines.ask("status", admin)
    assert re.search(r"client-0 +│ connected", said)
    assert re.search(r"Run first: running, round \d+ of 1000: accuracy", said)
    assert "The run first is stopped" in machines.ask("stop", admin)
    assert "No run is in progress" in machines.ask("status", admin)
    records = server / "runs" / "first"
    before = written(records)
    machines.begin("resume", "submit", admin, "--resume", "first")
    until(lambda: written(records) > before, 200.0)
    rounds = [row["round"] for row in read_rows(records)]
    assert rounds == list(range(1, len(rounds) + 1))
    machines.ask("stop", admin, "first")
    [newest] = machines.federation.client(0).rglob(NEWEST)
    [(app, signed_at)] = json.loads(newest.read_text()).items()
    newest.write_text(json.dumps({app: signed_at + 1}))
    machines.begin("old app", "submit", admin, *words, "--out", "second")
    log = machines.federation.client(0) / LOG
    until(lambda: f"Sign {app} again: it was signed at " in log.read_text(), 200.0)
    machines.ask("stop", admin, "second")
    assert copied.wait(180) == 1, "it does not try for ever, and no thread keeps it alive"
    assert machines.said("copy").count("is a copy") == 2
    for name in ("server", "copy", "client-0"):
        assert "_InactiveRpcError" not in machines.said(name)
        assert "public key" not in machines.said(name)


def test_a_client_ends_on_sigterm_also_while_its_server_ends(machines: Machines) -> None:
    for process in machines.running:
        process.send_signal(signal.SIGTERM)
    for process, name in zip(machines.running, ("server", "client-0", "client-1"), strict=True):
        assert process.wait(AT_ONCE_S) == 0, machines.said(name)
        assert "Traceback" not in machines.said(name)
