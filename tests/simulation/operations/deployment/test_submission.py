"""What `fedsel status` shows of a run's log."""

import pytest

from simulation.operations.deployment.submission import last_news

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
