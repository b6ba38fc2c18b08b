"""What `fedsel status` shows of a run's log."""

import pytest

from simulation.operations.deployment.submission import last_left_out, last_news

WAITS = "1 of 3 clients enrolled; waiting until 18:17"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("INFO : Starting\n", "no round is finished yet"),
        (f"INFO : Starting\n{WAITS}\n", WAITS),
        (f"{WAITS}\nround 1 of 5: accuracy 0.91, 3.0 s\nINFO : x\n", "round 1 of 5: accuracy 0.91, 3.0 s"),
        (f"round 1 of 5: accuracy 0.91\n{WAITS}\n", WAITS),
    ],
)
def test_the_last_round_or_wait_is_the_news_of_a_run(log, said):
    assert last_news(log) == said


def test_sites_whose_data_or_update_is_not_used_are_known_by_their_names():
    log = (
        "WARNING : Round 1: Node 648432 as client 2: left out: it has no column 'lactate'\n"
        "WARNING : Round 1: Node 721: left out, because its enrolment failed: Client 0: Its data cannot be used\n"
        "WARNING : Round 2: Node 721 as client 1: taken over from node 5, which left\n"
        "WARNING : Round 3: client 1 is left out: it did not answer within 20 s\n"
        "WARNING : Round 4: client 1 is left out: its update has norm 9\nround 4 of 5: accuracy 0.91\n"
    )
    assert last_left_out(log) == {
        "client-2": "round 1: it has no column 'lactate'",
        "client-0": "round 1: Its data cannot be used",
        "client-1": "round 4: its update has norm 9",
    }
