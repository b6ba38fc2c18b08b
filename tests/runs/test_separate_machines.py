"""A federation on separate machines, as near as one can come: namespaces with users, homes and shaped links."""

import json
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsel_app.config import Value
from tests.support.namespaces import NamespaceMachine, machines, refused

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
FEDSEL = str(Path(sys.executable).parent / "fedsel")
RATES = {"client-0": 1e6, "client-1": 2e6, "client-2": 5e6}
"""Bits a second of each client's link."""
DELAY = "40ms"
SETTINGS: dict[str, Value] = {"strategy": "hetero-select", "cohort": 3, "seed": 7, "local-steps": 5, "model": "mlp"}
PRIVATE = {"key", "server.key", "token"}


class Federated:
    """The machines of a provisioned federation, and the folder of who submits runs."""

    def __init__(self, made: dict[str, NamespaceMachine], folder: Path) -> None:
        self.made, self.folder, self.admin = made, folder, folder / "federation" / "admin"
        self.folders: dict[str, Path] = {}

    def log(self, name: str) -> Path:
        """Output of a machine."""
        return self.folder / f"{name}.txt"

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a machine as its user types it."""
        return self.made[name].start(FEDSEL, "start", name, log=self.log(name))

    def submit(self, *words: str) -> subprocess.Popen[str]:
        """Submit a run from the admin's machine."""
        return subprocess.Popen(
            [FEDSEL, "submit", str(self.admin), *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def records(self, name: str, file: str) -> list[dict[str, Any]]:
        """Lines of a run's records, on the server."""
        path = self.folders["server"] / "runs" / name / file
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def federation() -> Iterator[Federated]:
    """A server and three clients, started and connected."""
    if reason := refused():
        pytest.skip(f"There are no separate machines: {reason}.")
    folder = Path(tempfile.mkdtemp(prefix="fedsel-machines-"))
    folder.chmod(0o711)
    try:
        with machines(["server", *RATES], folder) as made:
            for name, rate in RATES.items():
                made[name].shape(f"{rate / 1e6:g}mbit", DELAY)
            readable = subprocess.run(made["server"].command(FEDSEL, "--version"), capture_output=True, check=False)
            if readable.returncode:
                pytest.skip("There are no separate machines: another user cannot read this checkout.")
            found = Federated(made, folder)
            server = made["server"].address
            provision = [FEDSEL, "provision", "--server", server, "--clients", "3", "--out", str(folder / "federation")]
            subprocess.run(provision, check=True)
            for name in ("server", *RATES):
                found.folders[name] = made[name].take(folder / "federation" / name)
                found.start(name)
            for name in RATES:
                until(lambda name=name: f"Connected to {server}" in found.log(name).read_text(), 120, found.log(name))
            yield found
    finally:
        shutil.rmtree(folder)


def until(holds: Callable[[], object], timeout_s: float, log: Path | None = None) -> None:
    """Wait until something holds."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, log.read_text()[-3000:] if log else "too late"
        time.sleep(0.5)


def settings(**others: Value) -> list[str]:
    """Settings of a run as they are typed."""
    values = SETTINGS | {key.replace("_", "-"): value for key, value in others.items()}
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def test_no_machine_reads_anothers_key(federation: Federated) -> None:
    for name, folder in federation.folders.items():
        for path in folder.rglob("*"):
            if path.is_file() and path.name in PRIVATE:
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        for other in federation.made.values():
            read = subprocess.run(other.command("cat", str(folder / "machine.toml")), capture_output=True, check=False)
            assert (read.returncode == 0) == (other.name == name)
    assert not list((federation.folder / "federation").rglob("ca.key"))


def test_bandwidths_are_those_of_the_links_and_order_the_kept_fractions(federation: Federated) -> None:
    """Each is measured within a quarter; the slowest link keeps least. Wall time is beside the simulated clock's."""
    done = federation.submit("--rounds", "6", "--out", "measured", *settings())
    said, _ = done.communicate(timeout=400)
    assert done.returncode == 0, said
    assert "round 6 of 6" in said
    clients = federation.records("measured", "clients.jsonl")
    rounds = federation.records("measured", "rounds.jsonl")
    print(json.dumps(clients[-1], indent=1), json.dumps(rounds[-1], indent=1))


def test_a_client_killed_and_a_link_cut_for_a_minute_end_no_run(federation: Federated) -> None: ...
