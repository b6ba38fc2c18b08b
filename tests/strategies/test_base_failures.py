"""Failures in a round: the run continues."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.records.schema import ClientTestRecord
from strategies.methods.random_selection import RandomSelection
from strategies.run_context import Evaluation
from tests.support.contexts import SIZE, context_of
from tests.support.rounds import run_round, run_rounds
from tests.support.stubs import StubClient, StubFederation, round_of, sends_its_update, trio, update_of, update_reply


def raises(client, message):
    raise RuntimeError("the GPU is gone")


@pytest.mark.parametrize(
    "bad",
    [raises, lambda client, message: update_reply(update_of(0), 0, round_of(message))],
    ids=["raises", "impostor"],
)
def test_a_bad_client_is_a_recorded_failure_and_the_rest_counts(bad):
    strategy = RandomSelection(context_of())
    stubs = [StubClient(client, bad if client == 1 else sends_its_update, examples=10) for client in range(3)]
    [row], [parameters] = run_round(strategy, stubs)
    np.testing.assert_allclose(parameters, [0.5, 0.0, 1.5, 0.0])
    assert row["selected"] == [0, 1, 2]
    assert row["aggregated"] == [0, 2]
    assert row["client_updates"] == len(row["weights"]) == len(row["fit_losses"]) == 2
    [failure] = row["failures"]
    assert failure["client"] == 1
    assert failure["reason"]
    # It was sent the model; what it sent is not counted.
    assert row["downlink_bytes"] == 3 * 4 * SIZE
    assert row["uplink_bytes"] == 2 * 33
    assert strategy.roster.failures.tolist() == [0, 1, 0]
    assert strategy.roster.selections.tolist() == [1, 1, 1]
    assert np.isfinite(row["round_s"])


def test_a_round_with_nothing_usable_leaves_the_model_and_the_run_goes_on():
    def fit(client, message):
        return ValueError("gone") if round_of(message) == 2 else sends_its_update(client, message)

    models = []

    def evaluate(parameters, buffers):
        models.append(parameters.copy())
        return Evaluation(0.5, 0.25)

    strategy = RandomSelection(replace(context_of(rounds=3), evaluate=evaluate))
    rows, _ = run_rounds(strategy, trio(fit), 3)
    assert [row["client_updates"] for row in rows] == [3, 0, 3]
    assert [failure["client"] for failure in rows[1]["failures"]] == [0, 1, 2]
    assert rows[1]["uplink_bytes"] == 0
    assert rows[1]["weights"] == rows[1]["aggregated"] == []
    assert rows[1]["accuracy"] == 0.25
    np.testing.assert_array_equal(models[0], models[1])
    assert (models[2] != models[1]).any()


@pytest.mark.parametrize("client_eval", [False, True])
def test_the_run_goes_on_when_all_clients_are_gone_and_when_one_is_back(client_eval):
    strategy = RandomSelection(context_of(rounds=3, client_eval=client_eval))
    stubs = trio(accuracy=0.5)
    federation = StubFederation(stubs)

    def leave_and_return(number):
        if number == 2:
            for stub in stubs:
                federation.leave(stub)
        if number == 3:
            federation.join(StubClient(1, node="back", accuracy=0.5))

    rows, _ = run_rounds(strategy, federation, 3, leave_and_return)
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert [row["selected"] for row in rows] == [[0, 1, 2], [], [1]]
    assert rows[1]["failures"] == []
    assert "accuracy" in rows[1]
    assert rows[2]["aggregated"] == [1]
    assert strategy.context.recorder.finished == 1


def test_client_evaluation_averages_clients_alike_and_leaves_out_who_cannot():
    stubs = [StubClient(client, accuracy=accuracy) for client, accuracy in enumerate((0.5, None, 1.0))]
    strategy = RandomSelection(context_of(client_eval=True))
    [row], _ = run_round(strategy, stubs)
    assert row["client_accuracy"] == 0.75
    tests = [ClientTestRecord(**line) for line in strategy.context.recorder.client_rows if "accuracy" in line]
    assert tests == [ClientTestRecord(0, 1, 0.5), ClientTestRecord(2, 1, 1.0)]
