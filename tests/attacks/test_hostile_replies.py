"""Hostile replies of one client in a user's own app: the run goes on, and the honest clients' updates count."""

import subprocess
import sys

import pytest

from tests.support.documentation import ROOT
from tests.support.flower_state import task_identity
from tests.support.hostile_replies import HOSTILE_ENROLMENTS, HOSTILE_REPLIES, HOSTILE_TESTS, hostile_run
from tests.support.own_app import CLIENTS
from tests.support.rounds import read_rows

__all__ = ["task_identity"]
DOORS = [(api, line) for api in ("message", "legacy") for line in ("unchanged", "line")]
HONEST = [*range(1, CLIENTS)]
MOST_BYTES = 100 * 10**6
"""Largest memory of a run with all hostile replies above that of a run with honest ones."""
pytestmark = pytest.mark.usefixtures("task_identity")


def not_refused(folder):
    """Name -> clients whose updates counted, for the replies after which these are not the honest clients."""
    rows = zip(HOSTILE_REPLIES, read_rows(folder / "run"), strict=True)
    return {name: row["aggregated"] for name, row in rows if row["aggregated"] != HONEST}


@pytest.mark.parametrize(("api", "line"), DOORS)
def test_a_hostile_reply_is_refused_and_the_others_count(tmp_path, api, line):
    assert len(HOSTILE_REPLIES) >= 54
    hostile_run(api, line == "line", HOSTILE_REPLIES.values(), tmp_path)
    assert not_refused(tmp_path) == {}


@pytest.mark.parametrize(("api", "line"), DOORS)
@pytest.mark.parametrize("name", ["random", "power-of-choice"])
def test_a_hostile_evaluation_ends_nothing_and_the_others_count(tmp_path, api, line, name):
    """The accuracy of each honest client is 0.5, and no loss is above those at first."""
    rounds = len(HOSTILE_TESTS)
    sent = [change for change in HOSTILE_TESTS.values() for _ in range(1 + (name != "random"))]
    metrics = hostile_run(api, line == "line", sent, tmp_path, "evaluate", name, rounds=rounds)
    assert len(read_rows(tmp_path / "run")) == len(metrics) == rounds
    assert all(told.get("eval_acc", 0.5) == 0.5 for told in metrics.values())
    losses = [told["loss" if api == "legacy" else "eval_loss"] for told in metrics.values()]
    assert all(0.0 < loss <= losses[0] for loss in losses)


@pytest.mark.parametrize(("api", "line"), DOORS)
@pytest.mark.parametrize("name", HOSTILE_ENROLMENTS)
def test_a_hostile_enrolment_keeps_nobody_else_from_training(tmp_path, no_waiting, api, line, name):
    options = {"rounds": 1, "min_available_clients": len(HONEST), "connect_timeout_s": 5, "enrol_timeout_s": 5.0}
    hostile_run(api, line == "line", [HOSTILE_ENROLMENTS[name]] * 9, tmp_path, "query", **options)
    [row] = read_rows(tmp_path / "run")
    assert set(row["aggregated"]) >= set(HONEST)


@pytest.mark.slow
@pytest.mark.parametrize(("api", "line"), DOORS)
def test_hostile_replies_take_little_memory(tmp_path, api, line):
    command = [sys.executable, "-m", "tests.support.hostile_replies", api, line, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout.splitlines()[-1]) <= MOST_BYTES
    assert not_refused(tmp_path / "hostile") == {}
