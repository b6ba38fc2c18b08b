"""A federation on separate machines, as near as one can come: namespaces with users, homes and shaped links."""

import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsel_app.config import Value
from fedsel_app.network.links import Floats, SimulatedLinks
from simulation.workbench.cli import main
from tests.support.namespaces import NamespaceMachine, machines, refused
from tests.support.processes import until
from tests.support.rounds import read_rows
from tests.support.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
FEDSEL = str(Path(sys.executable).parent / "fedsel")
RATES = {"client-0": 1e6, "client-1": 2e6, "client-2": 5e6}
"""Bits a second of each client's link."""
DELAY_S = 0.04
SETTINGS: dict[str, Value] = {"strategy": "hetero-select", "cohort": 3, "seed": 7, "local-steps": 5, "model": "mlp"}
CAPPED: dict[str, Value] = {
    "allocation": "uniform",
    "link-cap": "round",
    "kept-fraction": 0.4,
    "kept-cosine": 0.9,
    "kept-floor": 0.35,
    "cosine-from": "warmup",
    "local-steps": 1,
}
"""Every client keeps the fraction of the round, 0.65 in round 3 and 0.35 to 0.4 later, unless its link carries less.

The links' caps are (0.4 + compute / dense upload) times the bandwidth over the middle one: half of that, that, and 2.5
times that. So round 3 has three fractions, and the slowest link keeps less in each later round. One local step keeps
the computing short beside an upload, so the fractions depend little on the load of the machine.
"""
STEP_S = 0.005
"""Seconds of a local step in the simulated run. A real one takes about as long."""
CUT_S = 60.0
PRIVATE = {"key", "server.key", "token"}


class Federated:
    """The machines of a provisioned federation, and the folder of who submits runs."""

    def __init__(self, made: dict[str, NamespaceMachine], folder: Path) -> None:
        self.made, self.folder, self.admin = made, folder, folder / "federation" / "admin"
        self.folders: dict[str, Path] = {}
        self.began: dict[str, int] = {}
        """Size of each machine's output at its last start, in characters."""

    def status(self) -> str:
        """What `fedsel status` prints."""
        words = [FEDSEL, "status", str(self.admin)]
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=True).stdout

    def log(self, name: str) -> Path:
        """Output of a machine."""
        return self.folder / f"{name}.txt"

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a machine as its user types it."""
        self.began[name] = len(self.log(name).read_text()) if self.log(name).exists() else 0
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
        folder = self.folders["server"] / "runs" / name
        return read_rows(folder, file) if (folder / file).exists() else []

    def last(self, name: str) -> dict[str, Any]:
        """A run's last round."""
        return self.records(name, "rounds.jsonl")[-1]

    def failed(self, name: str) -> set[int]:
        """Clients that failed in any round of a run."""
        return {failure["client"] for record in self.records(name, "rounds.jsonl") for failure in record["failures"]}

    def connected(self, *names: str) -> bool:
        """Whether the server has said of all of these, since its last start, that they are connected."""
        said = self.log("server").read_text()[self.began["server"] :]
        return all(f"{name} is connected." in said for name in names)


@pytest.fixture(scope="module")
def federation() -> Iterator[Federated]:
    """A server and three clients, started and connected."""
    if reason := refused():
        pytest.skip(f"There are no separate machines: {reason}.")
    folder = Path(tempfile.mkdtemp(prefix="fedsel-machines-"))
    folder.chmod(0o711)
    try:
        with machines(["server", *RATES], folder, DELAY_S) as made:
            # Python is the child of a shell: `setpriv` itself may still read everything.
            run = ["sh", "-c", f"{sys.executable} -c 'import fedsel_app'; exit $?"]
            if subprocess.run(made["server"].command(*run), cwd=ROOT, capture_output=True, check=False).returncode:
                pytest.skip(f"There are no separate machines: another user cannot run {sys.executable}.")
            for name, rate in RATES.items():
                made[name].shape(rate)
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


def settings(**others: Value) -> list[str]:
    """`SETTINGS`, and others, as they are typed."""
    return typed(SETTINGS | {key.replace("_", "-"): value for key, value in others.items()})


def typed(values: Mapping[str, Value]) -> list[str]:
    """Settings as they are typed."""
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


def simulated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Rounds of the capped run over simulated links with `RATES`, whose mean counts as that of the middle one."""

    def observe(*_: object) -> tuple[Floats, Floats]:
        return np.array([*RATES.values()]), np.full(len(RATES), STEP_S)

    monkeypatch.setattr(SimulatedLinks, "observe", observe)
    middle: dict[str, Value] = {"uplink-min-bits-per-s": 1e6, "uplink-max-bits-per-s": 3e6}
    computing: dict[str, Value] = {"step-min-s": STEP_S, "step-max-s": STEP_S, "engine": "inline"}
    run = ["run", "--clients", "3", "--rounds", "6", "--out", str(folder)]
    assert main([*run, *typed(SETTINGS | CAPPED | middle | computing)]) == 0
    return read_rows(folder)


def test_bandwidths_are_those_of_the_links_and_order_the_kept_fractions(
    federation: Federated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulated run over the same links keeps these fractions too, and its rounds lack the downloads."""
    done = federation.submit("--rounds", "6", "--out", "measured", *typed(SETTINGS | CAPPED))
    said, _ = done.communicate(timeout=400)
    assert done.returncode == 0, said
    rounds = federation.records("measured", "rounds.jsonl")
    rates = list(RATES.values())
    assert rounds[-1]["uplink_bits_per_s"] == pytest.approx(rates, rel=0.25)
    first, *later = [record["kept_fractions"] for record in rounds[2:]]
    assert first == sorted(set(first)), "the slowest link keeps least"
    assert all(kept == sorted(kept) and kept[0] < kept[1] for kept in later)
    predicted = simulated(federation.folder / "predicted", monkeypatch)
    for record, expected in zip(rounds[2:], predicted[2:], strict=True):
        # The two bandwidths in a cap may each be 25% off.
        assert record["kept_fractions"] == pytest.approx(expected["kept_fractions"], rel=0.4)
        assert record["round_s"] > expected["round_s"]
    for record, expected in zip(rounds[3:], predicted[3:], strict=True):
        assert record["kept_fractions"][1:] == expected["kept_fractions"][1:], "these links carry the round's fraction"
    for record, expected in zip(rounds, predicted, strict=True):
        measured = ", ".join(f"{rate / 1e6:.2f}" for rate in record["uplink_bits_per_s"])
        kept, foretold = (
            ", ".join(f"{fraction:.2f}" for fraction in made["kept_fractions"]) for made in (record, expected)
        )
        print(
            f"{record['round']} | {measured} | {kept} | {foretold} | {record['round_s']:.1f} | "
            f"{expected['round_s']:.2f}"
        )


def test_a_link_cut_for_a_minute_and_a_client_killed_end_no_run(federation: Federated) -> None:
    """Each costs its client a round; the one with the mended link is back by itself, the other when it is started."""
    run = federation.submit("--rounds", "24", "--out", "cut", *settings(strategy="random", kept_fraction=0.1))
    until(lambda: len(federation.records("cut", "rounds.jsonl")) >= 2, 120)
    said = federation.status()
    print(said)
    assert all(re.search(rf"{name} +│ connected +│ 20\d\d-", said) for name in RATES)
    assert re.search(r"Run \d+: running, round \d+ of 24: accuracy", said)
    federation.made["client-1"].cut(cut=True)
    time.sleep(CUT_S)
    federation.made["client-1"].cut(cut=False)
    until(lambda: 1 in federation.last("cut")["aggregated"], 240)
    federation.made["client-2"].kill()
    until(lambda: federation.failed("cut") == {1, 2}, 240)
    federation.start("client-2")
    said, _ = run.communicate(timeout=400)
    assert run.returncode == 0, said
    assert federation.failed("cut") == {1, 2}
    assert federation.last("cut")["aggregated"] == [0, 1, 2]


RESTARTED: dict[str, dict[str, Value]] = {
    "synchronous": {},
    "buffered": {"waiting": "buffered", "clock": "full", "spread": "log-normal"},
}


def restarted(federation: Federated, name: str, *words: str) -> None:
    """Submit a run, end the server after four rounds, start it again, and resume the run."""
    run = federation.submit("--out", name, *words)
    until(lambda: len(federation.records(name, "rounds.jsonl")) >= 4, 120)
    server = federation.made["server"].processes[-1]
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 1
    assert f"Go on with: fedsel submit {federation.admin} --resume {name}" in said
    federation.start("server")
    until(lambda: federation.connected(*RATES), 240, federation.log("server"))
    resumed = federation.submit("--resume", name)
    said, _ = resumed.communicate(timeout=400)
    assert resumed.returncode == 0, said


@pytest.mark.parametrize("waiting", RESTARTED)
def test_a_server_that_is_restarted_resumes_to_the_bits_of_an_uninterrupted_run(
    federation: Federated, waiting: str
) -> None:
    same = settings(links="simulated", checkpoint_every=1, kept_fraction=0.1, rounds=12, **RESTARTED[waiting])
    restarted(federation, waiting, *same)
    whole = federation.folder / f"whole-{waiting}"
    alone = [FEDSEL, "run", "--clients", "3", "--out", str(whole), *same]
    subprocess.run(alone, check=True, stdout=subprocess.DEVNULL)
    run_folder = federation.folders["server"] / "runs" / waiting
    assert (run_folder / "model.npz").read_bytes() == (whole / "model.npz").read_bytes()


LATE: dict[str, Value] = {"strategy": "random", "waiting": "buffered", "buffer-size": 1, "compressor": "none"}
LATE |= {"cohort": 3, "seed": 7, "local-steps": 5, "model": "mlp", "rounds": 30}


def given(rounds: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Updates of each client, the slowest link first, and the mean seconds between two of them."""
    rates = rounds[0]["uplink_bits_per_s"]
    order = np.argsort(rates, kind="stable").tolist() if len(set(rates)) > 1 else [0, 1, 2]
    times = [[row["time_s"] for row in rounds if client in row["aggregated"]] for client in order]
    return [(len(each), each[-1] / len(each)) for each in times]


def test_a_server_that_does_not_wait_takes_more_from_faster_links_and_starves_none(federation: Federated) -> None:
    """The prediction is that of the full clock with the same three links."""
    done = federation.submit("--out", "late", *typed(LATE))
    said, _ = done.communicate(timeout=400)
    assert done.returncode == 0, said
    found = given(federation.records("late", "rounds.jsonl"))
    table = federation.folder / "links.csv"
    rows = [f"{rate},{rate},{STEP_S}" for rate in RATES.values()]
    table.write_text("\n".join(["uplink_bits_per_s,downlink_bits_per_s,step_s", *rows]) + "\n", encoding="utf-8")
    clock: dict[str, Value] = {"clock": "full", "spread": "table", "spread-table": str(table), "engine": "inline"}
    out = federation.folder / "late"
    assert main(["run", "--clients", "3", "--out", str(out), *typed(LATE | clock)]) == 0
    predicted = given(read_rows(out))
    for rate, measured, expected in zip(RATES.values(), found, predicted, strict=True):
        print(f"{rate / 1e6:g} Mbit/s: {measured[0]} updates, one in {measured[1]:.2f} s", end="; ")
        print(f"the clock: {expected[0]}, one in {expected[1]:.2f} s")
    updates = [count for count, _ in found]
    assert 1 <= updates[0] < updates[1] < updates[2]


def test_a_server_that_does_not_wait_goes_on_after_a_restart(federation: Federated) -> None:
    """After a restart, clients under way are asked again. Links are measured, so replies come in another order."""
    restarted(federation, "late-restarted", *typed(LATE | {"rounds": 12, "checkpoint-every": 1}))
    rounds = federation.records("late-restarted", "rounds.jsonl")
    assert [row["round"] for row in rounds] == list(range(1, 13))
    assert all(len(row["aggregated"]) == 1 for row in rounds)
    sent = [client for row in rounds for client in row["selected"]]
    came = [client for row in rounds for client in row["aggregated"]]
    assert len(sent) - len(came) - sum(len(row["failures"]) for row in rounds) == rounds[-1]["under_way"]
    assert len({client for row in rounds[4:] for client in row["aggregated"]}) > 1
