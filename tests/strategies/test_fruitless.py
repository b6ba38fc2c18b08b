"""A run to which no client contributes fails, and the end of a run names what went wrong in all of it."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import ConfigError
from fedsel_app.records.files import RunFailed
from fedsel_app.records.schema import RoundRecord
from strategies.methods.random_selection import RandomSelection
from strategies.round.flower_grid import own_words
from strategies.round_record import fruitless_reasons, remarks
from tests.support.contexts import context_of
from tests.support.rounds import run_rounds
from tests.support.stubs import StubFederation, round_of, sends_its_update, trio, update_of, update_reply


def gone(client, message):
    return RuntimeError(f"the GPU of client {client} is gone" if client == 2 else "no data")


def broken_in(*rounds):
    """Clients that fail in these rounds."""
    return lambda client, message: (gone if round_of(message) in rounds else sends_its_update)(client, message)


def test_three_rounds_in_a_row_without_an_update_end_a_run_with_the_commonest_reason():
    strategy = RandomSelection(context_of(rounds=20))
    said = r"^The run has failed: in 3 rounds in a row no client brought .* The reason, 6 of 9 times: no data$"
    with pytest.raises(RunFailed, match=said):
        run_rounds(strategy, trio(broken_in(*range(2, 20))), 20)
    recorder = strategy.context.recorder
    assert [len(row["failures"]) for row in recorder.rows] == [0, 3, 3, 3]
    assert recorder.finished == 0


@pytest.mark.parametrize("rounds", [1, 2])
def test_so_does_a_shorter_run_without_any_update(rounds):
    with pytest.raises(RunFailed, match="in all its rounds no client"):
        run_rounds(RandomSelection(context_of(rounds=rounds)), trio(gone), rounds)


def test_one_update_in_three_rounds_is_enough():
    strategy = RandomSelection(context_of(rounds=6))
    rows, _ = run_rounds(strategy, trio(broken_in(2, 3, 5, 6)), 6)
    assert [len(row["aggregated"]) for row in rows] == [3, 0, 0, 3, 0, 0]
    assert strategy.context.recorder.finished == 1


def test_rounds_without_a_connected_client_count():
    strategy, stubs = RandomSelection(context_of(rounds=9)), trio()
    federation = StubFederation(stubs)

    def leave(number):
        if number == 2:
            for stub in stubs:
                federation.leave(stub)

    with pytest.raises(RunFailed, match="The reason, 3 of 3 times: no client is connected"):
        run_rounds(strategy, federation, 9, leave)


@pytest.mark.parametrize(
    "lost",
    [
        {"client_failure_rate": 0.999},
        {"round_deadline_s": 1e-9},
    ],
    ids=["dropped", "delayed"],
)
def test_what_a_simulation_drops_or_delays_is_no_failure_of_the_run(lost):
    strategy = RandomSelection(context_of(rounds=5, **lost))
    rows, _ = run_rounds(strategy, trio(), 5)
    assert [row["aggregated"] for row in rows] == [[]] * 5
    assert strategy.context.recorder.finished == 1


@pytest.mark.parametrize(
    ("reason", "measured", "counts"),
    [
        ("it left after 5.0 s: see 'availability'", False, False),
        ("it took 9.0 s, and the deadline is 5 s: see 'round-deadline-s'", False, False),
        ("it took 9.0 s, and the deadline is 5 s: see 'round-deadline-s'", True, True),
        ("no data", False, True),
    ],
)
def test_measured_delays_count_and_simulated_ones_do_not(reason, measured, counts):
    record = RoundRecord(1, cohort=1, selected=[0], failures=[{"client": 0, "reason": reason}])
    assert fruitless_reasons(record, measured=measured) == ([reason] if counts else [])
    assert bool(fruitless_reasons(record, measured=measured, in_vain=True)) == (counts or "left" in reason)


# The end of a run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [float("inf"), float("nan"), None])
def test_a_last_loss_that_is_not_finite_is_told(loss):
    [said] = remarks([{"round": 1, "loss": 1.0}, {"round": 2, "loss": loss}], context_of())
    assert said.endswith("the loss of the last evaluation, in round 2, is not finite.")


# A client's own reason ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "own"),
    [
        ("<class 'RuntimeError'>:<'the GPU is gone'>", "the GPU is gone"),
        ("<class 'fedsel_app.config.settings.ConfigError'>:<'Set 'lr' to 1.'>", "Set 'lr' to 1."),
        (
            "<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'\x1b[36mray::run()\x1b[39m (pid=7)\n  File x\n"
            "flwr.ClientAppException: \nException ClientAppException occurred. Message: no data\ntoday'>",
            "no data\ntoday",
        ),
        ("<class 'builtins.KeyError'>:<''>", "KeyError"),
        ("Error: Node Unavailable", "Error: Node Unavailable"),
        ("<class 'x.E'>:<'" + " " * 10**6, "E"),
    ],
)
def test_flowers_words_around_the_reason_of_a_client_are_left_out(reason, own):
    assert own_words(reason) == own


# The bound of norms -------------------------------------------------------------------------------------------


def shrinking(scales):
    """Clients whose updates have these scales, by round; client 2 always sends its whole update."""

    def fit(client, message):
        number = round_of(message)
        update = update_of(client)
        values = update.values * (1.0 if client == 2 else scales[number - 1])
        return update_reply(replace(update, values=values.astype(np.float32)), client, number)

    return fit


def test_the_bound_of_norms_is_resumed():
    scales = [1.0, 1e-4, 1e-6]
    context = context_of(rounds=3, checkpoint_every=1)
    strategy = RandomSelection(context)
    run_rounds(strategy, trio(shrinking(scales)), 2)
    resumed = RandomSelection(context_of(rounds=3))
    resumed.restore(context.recorder.saved)
    rows, _ = run_rounds(resumed, trio(shrinking(scales)), 1)
    assert rows[-1]["aggregated"] == [0, 1, 2]
    with pytest.raises(ConfigError, match="does not fit this run"):
        resumed.restore({key: each for key, each in context.recorder.saved.items() if "typical" not in key})
