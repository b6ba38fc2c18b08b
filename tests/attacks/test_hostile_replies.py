"""Hostile replies of one client in a user's own app: the run goes on, and the honest clients' updates count."""

import pytest

from tests.support.hostile_replies import HOSTILE_ENROLMENTS, HOSTILE_REPLIES, HOSTILE_TESTS, hostile_run
from tests.support.own_app import CLIENTS
from tests.support.rounds import read_rows

HONEST = [*range(1, CLIENTS)]
pytestmark = pytest.mark.usefixtures("task_identity")


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
def test_a_hostile_reply_is_refused_and_the_others_count(tmp_path, line):
    hostile_run(line, HOSTILE_REPLIES.values(), tmp_path)
    rows = zip(HOSTILE_REPLIES, read_rows(tmp_path / "run"), strict=True)
    assert {name: row["aggregated"] for name, row in rows if row["aggregated"] != HONEST} == {}


@pytest.mark.parametrize(("line", "name"), [(False, "random"), (True, "power-of-choice")])
def test_a_hostile_evaluation_ends_nothing_and_the_others_count(tmp_path, line, name):
    """The accuracy of each honest client is 0.5, and no loss is above those at first."""
    rounds = len(HOSTILE_TESTS)
    sent = [change for change in HOSTILE_TESTS.values() for _ in range(1 + (name != "random"))]
    metrics = hostile_run(line, sent, tmp_path, "evaluate", name, rounds=rounds)
    assert len(read_rows(tmp_path / "run")) == len(metrics) == rounds
    assert all(row.get("eval_acc", 0.5) == 0.5 for row in metrics.values())
    losses = [row["eval_loss"] for row in metrics.values()]
    assert all(0.0 < loss <= losses[0] for loss in losses)


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
@pytest.mark.parametrize("name", HOSTILE_ENROLMENTS)
def test_a_hostile_enrolment_keeps_nobody_else_from_training(tmp_path, no_waiting, line, name):
    options = {"rounds": 1, "min_available_clients": len(HONEST), "connect_timeout_s": 5, "enrol_timeout_s": 5.0}
    hostile_run(line, [HOSTILE_ENROLMENTS[name]] * 9, tmp_path, "query", **options)
    [row] = read_rows(tmp_path / "run")
    assert set(row["aggregated"]) >= set(HONEST)
