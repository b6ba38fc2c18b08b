"""Nothing waits for ever. Frozen, hanging and killed processes are noticed, and replaced or left out."""

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedsel_app.network.reply_timeout import LEAST_S, ReplyTimeout
from fedsel_app.wiring.configuration import resolve
from simulation.engines import flower_engine as engine
from simulation.engines import starter
from simulation.engines.flower_engine import NO_NODE, START_S, WorkerWatch
from simulation.operations.deployment import flower_cli
from simulation.operations.deployment.flower_cli import node_config_text, show
from simulation.operations.deployment.local_deployment import Deployment
from simulation.workbench.comparison.run_processes import FEDSEL
from tests.support.client_messages import train_message
from tests.support.logs import logged
from tests.support.processes import await_that, carried_out, running, titles, training
from tests.support.rounds import read_rows, written
from tests.support.stubbed_runs import compared, out, records, stub

__all__ = ["out"]


# The rule


@pytest.mark.parametrize(
    ("first_s", "answers", "wait_s"),
    [
        (0.0, [], float("inf")),
        (0.0, [3.0], float("inf")),
        (1800.0, [], 1800.0),
        (1800.0, [12.0], LEAST_S),
        (1800.0, [13.0], 130.0),
        (1800.0, [20.0, 50.0, 30.0], 500.0),
        (5.0, [0.4], 5.0),
        (5.0, [0.6], 6.0),
    ],
)
def test_the_longest_wait_is_ten_times_the_slowest_answer(first_s, answers, wait_s):
    """Each kind of question has its own slowest answer."""
    timeouts = ReplyTimeout(first_s)
    for seconds in answers:
        timeouts.learn("train", seconds)
    assert timeouts.longest_wait_s("train") == wait_s
    assert timeouts.longest_wait_s("evaluate") == (first_s or float("inf"))


def test_a_message_with_several_answers_has_the_time_of_all():
    timeouts = ReplyTimeout(600.0)
    assert timeouts.longest_wait_s("train", 4) == 2400.0
    timeouts.learn("train", 80.0, 4)
    assert [timeouts.longest_wait_s("train", answers) for answers in (1, 4)] == [200.0, 800.0]


# Ray workers


class FakeRay:
    """Ray whose workers answer never, and whose clock is that of the waiting."""

    def __init__(self, alive):
        self.alive, self.killed, self.now_s = alive, [], 0.0

    def wait(self, answers, timeout):
        self.now_s += timeout
        return [], answers

    def kill(self, worker):
        self.killed.append(worker)

    def nodes(self):
        return [{"Alive": self.alive}]


class FrozenWorker:
    """Worker that takes a message and never answers."""

    run = SimpleNamespace(remote=lambda *arguments: "answer")


def ask(watch, pool, clients=()):
    backend = SimpleNamespace(pool=pool, app_fn=None)
    return watch.process_message(backend, train_message(clients), SimpleNamespace(node_config={"partition-id": 7}))


@pytest.mark.parametrize(
    ("ready", "asked", "waited_s", "clients"),
    [
        (True, (), 130.0, "client 7"),
        (False, (), START_S, "client 7"),
        (True, (7, 3, 5), 390.0, "client 7 and 2 others"),
    ],
)
def test_a_frozen_worker_is_killed_and_replaced(monkeypatch, ready, asked, waited_s, clients):
    """Its client is named; the wait is ten times the slowest answer, and longer only for a worker that starts."""
    ray = FakeRay(alive=True)
    monkeypatch.setattr(engine, "ray", ray)
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: ray.now_s))
    timeouts = ReplyTimeout(200.0)
    timeouts.learn("train", 13.0)
    watch, frozen, fresh = WorkerWatch(timeouts, pytest.fail), FrozenWorker(), FrozenWorker()
    watch._ready |= {frozen} if ready else set()
    pool = SimpleNamespace(pool=[frozen], create_actor_fn=lambda: fresh)
    with logged() as log, pytest.raises(TimeoutError):
        ask(watch, pool, asked)
    assert ray.now_s == waited_s
    assert (ray.killed, pool.pool) == ([frozen], [fresh])
    assert log() == (
        f"The message to {clients} was not answered within {waited_s:.0f} s (see 'reply-timeout-s'): its Ray worker is "
        "killed and replaced.\n"
    )


def test_a_raylet_that_is_gone_ends_the_run(monkeypatch):
    class Ended(Exception):
        pass

    def end(reason):
        raise Ended(reason)

    monkeypatch.setattr(engine, "ray", FakeRay(alive=False))
    pool = SimpleNamespace(pool=[FrozenWorker()])
    with pytest.raises(Ended, match=NO_NODE):
        ask(WorkerWatch(ReplyTimeout(200.0), end), pool)


# The log of a deployed run


def test_a_silent_log_is_followed_by_a_question(monkeypatch):
    """A SuperLink that is frozen writes nothing; neither does one whose ServerApp is."""
    monkeypatch.setattr(flower_cli, "SILENCE_S", 0.01)
    over, shown, asked = threading.Event(), [], []

    def lines():
        yield "round 1\n"
        over.wait(60.0)

    def ended():
        asked.append(len(shown))
        return len(asked) == 3

    show(lines(), shown.append, ended)
    over.set()
    assert (shown, len(asked)) == (["round 1"], 3)
    show(iter(["a\n", "b"]), shown.append, pytest.fail)
    assert shown == ["round 1", "a", "b"]


# Comparisons


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["run", "server"])
def test_a_comparison_whose_process_is_frozen_goes_on(capsys, monkeypatch, tmp_path, out, victim):
    """Frozen after its first round; with the starter nobody sees any more that runs end."""
    monkeypatch.setattr(starter, "ANSWER_S", 3.0)
    arguments = ("--jobs", "2", "--set", "reply-timeout-s=2")
    stub(monkeypatch, checkpoint=True)
    assert compared(capsys, tmp_path / "calm", *arguments)[0] == 0
    stub(monkeypatch, checkpoint=True, kill="random-s1", signal="SIGSTOP", victim=victim)
    code, said, error = compared(capsys, out, *arguments)
    assert (code, error) == (0, "")
    assert "killed: it wrote no round for " in said or "has not answered within 3 s" in said
    assert "random-s1: ended by SIG" in said
    assert "and restarted" in said
    assert records(out) == records(tmp_path / "calm")


# Real processes

TIMEOUT_S = 20.0
RAY = (*FEDSEL, "run", "--engine", "ray", "--strategy", "random", "--clients", "6", "--cohort", "3")
RAY += ("--set", "workers=2", "--set", "local-steps=300", "--set", f"reply-timeout-s={TIMEOUT_S:g}")
RAYLET_S = 120.0
"""Seconds in which Ray notices that a raylet is frozen: a minute, on a quiet machine."""


def family(root: int, title: str) -> list[int]:
    """Processes below `root` whose command line begins with `title`, or names that program."""
    processes = titles()
    below = {root}
    while more := {pid for pid, (parent, _) in processes.items() if parent in below} - below:
        below |= more
    return sorted(pid for pid in below if processes.get(pid, (0, ""))[1].split(" ")[0].endswith(title))


def start_ray(folder: Path, rounds: int) -> "subprocess.Popen[str]":
    """A run that has written three rounds."""
    command = [*RAY, "--rounds", str(rounds), "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while written(folder) < 3:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    return process


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_frozen_ray_worker_is_replaced_and_its_client_has_failed(tmp_path):
    folder = tmp_path / "run"
    process = start_ray(folder, 8)
    while not (workers := family(process.pid, "ray::ClientAppActor.run")):
        time.sleep(0.01)
    os.kill(workers[0], signal.SIGSTOP)
    frozen_s, before = time.monotonic(), written(folder)
    while written(folder) == before:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    noticed_s = time.monotonic() - frozen_s
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert noticed_s < 2 * TIMEOUT_S
    rows = read_rows(folder)
    [failure] = [failure for row in rows for failure in row["failures"]]
    assert f"The message to client {failure['client']} was not answered within" in output
    assert "its Ray worker is killed and replaced" in output
    assert not rows[-1]["failures"]
    print(f"noticed after {noticed_s:.0f} s")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_raylet_that_is_killed_or_frozen_ends_the_run_with_a_sentence(tmp_path, number):
    folder = tmp_path / "run"
    process = start_ray(folder, 100_000)
    [raylet] = family(process.pid, "/raylet")
    os.kill(raylet, number)
    began_s = time.monotonic()
    output, _ = process.communicate(timeout=2 * RAYLET_S)
    print(f"ended after {time.monotonic() - began_s:.0f} s")
    assert process.returncode == 1
    assert output.rstrip().endswith(
        f"{NO_NODE}; the rounds so far are kept. Go on with: fedsel run --resume {folder}"
    ), output[-2000:]


DEPLOYED = {"strategy": "random", "clients": 2, "cohort": 2, "rounds": 100_000, "local-steps": 500, "model": "logistic"}
FLOWERS_S = 60.0
"""Seconds without a heartbeat after which Flower gives a node or a task up."""

PROBED = DEPLOYED | {"strategy": "power-of-choice", "clients": 4, "cohort": 3, "waiting": "buffered"}
PROBED |= {"links": "measured", "model": "tests.cases.models:Slow"}
SLOWEST = 1.5
"""Largest factor by which such a client may prolong the usual round."""


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("slow", [False, True])
def test_a_frozen_or_slow_supernode_holds_no_server_that_does_not_wait(tmp_path, monkeypatch, slow):
    """The server probes all idle clients in each round, and steps after two replies. A slow client takes a minute."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    folder = tmp_path / "run"
    config = resolve(PROBED | {"out": str(folder)})
    own = {"state-dir": str(tmp_path / "state"), "allow-code": PROBED["model"]}
    nodes = [node_config_text(client, 4, own) for client in range(4)]
    with ThreadPoolExecutor(1) as pool, Deployment(tmp_path / "processes", nodes) as deployment:
        run = pool.submit(carried_out, deployment, config, [])
        await_that(lambda: written(folder) >= 25, run)
        before, node, began_s = written(folder), deployment._children[-1], time.monotonic()
        [pid] = running(node, "simulation.operations.guard.supernode_process")
        if slow:
            (tmp_path / "processes" / node.name / "slow").touch()
        else:
            os.kill(pid, signal.SIGSTOP)
        await_that(lambda: written(folder) >= before + 25 and time.monotonic() - began_s > 130.0 * slow, run)
        rows = read_rows(folder)
        os.kill(pid, signal.SIGCONT)
    seconds = [row["round_s"] for row in rows]
    usual, held = seconds[5:before], seconds[before:]
    missed = [row["round"] for row in rows[before:] if 3 in [failure["client"] for failure in row["failures"]]]
    print(f"usual {np.median(usual):.2f} s; then {np.round(held, 2)} s; failures in rounds {missed}")
    assert missed
    assert np.median(held) <= SLOWEST * np.median(usual)
    assert np.quantile(held, 0.9) <= SLOWEST * max(usual)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_a_deployment_goes_on_without_who_is_frozen_and_ends_without_its_server(tmp_path):
    """A SuperNode, then an app process, then the ServerApp."""
    folder = tmp_path / "run"
    config = resolve(DEPLOYED | {"out": str(folder)})
    nodes = [node_config_text(client, 2, {"state-dir": str(tmp_path / "state")}) for client in range(2)]
    with ThreadPoolExecutor(1) as pool, Deployment(tmp_path / "processes", nodes) as deployment:
        lines: list[str] = []
        run = pool.submit(carried_out, deployment, config, lines)
        superlink, _, node = deployment._children

        def failed(after):
            return any(failure["client"] == 1 for row in read_rows(folder)[after:] for failure in row["failures"])

        for what, program in (
            ("SuperNode", "simulation.operations.guard.supernode_process"),
            ("app process", "app_process.py"),
        ):
            before = written(folder)
            await_that(lambda before=before: written(folder) >= before + 3 and training(node), run)
            before, [pid] = written(folder), running(node, program)
            os.kill(pid, signal.SIGSTOP)
            began_s = time.monotonic()
            await_that(lambda before=before: failed(before), run)
            frozen_s = time.monotonic() - began_s
            print(f"frozen {what}: a recorded failure after {frozen_s:.0f} s")
            assert frozen_s < 2 * FLOWERS_S
            if what == "SuperNode":
                os.kill(pid, signal.SIGCONT)
            await_that(lambda: 1 in read_rows(folder)[-1]["aggregated"], run)
        assert (
            "The app process is replaced because it sends no heartbeats. Its message has failed."
            in node.log.read_text()
        )
        assert any("client 1 is left out: " in line for line in lines)

        [pid] = running(superlink, "flwr-serverapp")
        os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
        result = run.result()
        frozen_s = time.monotonic() - began_s
        print(f"frozen ServerApp: {result} after {frozen_s:.0f} s")
        assert result.status == "finished:failed"
        assert "No heartbeat" in result.details
        assert frozen_s < 4 * FLOWERS_S
