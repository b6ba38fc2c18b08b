import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.clientapp import ClientApp

import fedsel_app
from simulation.flower_app.client_metrics import mean_metrics
from tests.support.hostile_replies import with_array, with_metrics
from tests.support.in_process_grid import InProcessGrid
from tests.support.logs import logged
from tests.support.own_app import CLIENTS, by_name, model, node, register

pytestmark = pytest.mark.usefixtures("task_identity")


def test_means_are_weighted_by_examples_and_leave_out_what_is_not_finite():
    reported = {0: {"loss": 1.0, "f1": float("nan")}, 2: {"loss": 4.0, "f1": 0.5}, 3: {"f1": float("-inf"), "steps": 7}}
    with logged() as log:
        means = mean_metrics(reported, np.array([10, 99, 30, 60]), 5)
    assert means == MetricRecord({"f1": 0.5, "loss": (10 * 1.0 + 30 * 4.0) / 40, "steps": 7.0})
    assert log().splitlines() == [
        f"Round 5: metrics of client {client} are left out, because they are not finite: f1" for client in (0, 3)
    ]


def test_the_largest_values_have_a_finite_mean():
    largest = np.finfo(np.float64).max
    assert mean_metrics({0: {"a": largest}, 1: {"a": largest}}, np.array([2, 2]), 1) == MetricRecord({"a": largest})


def metrics_of_round(change, *, line):
    """Clients' metrics of a round in which client 0 changes its reply; the metric m of the others is 1."""
    app = register(fedsel_app.client_app() if line else ClientApp(), [], {"m": 1.0})

    def answer(message, context):
        reply = app(message, context)
        training = message.metadata.message_type == "train"
        return change(reply) if training and context.node_config["partition-id"] == 0 else reply

    grid = InProcessGrid(answer, {90 + client: node(client) for client in range(CLIENTS)})
    built = fedsel_app.strategy("random", clients=CLIENTS, cohort=CLIENTS, links="simulated", example_clip=10.0)
    return built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=1).train_metrics_clientapp[1]


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
def test_metrics_of_a_refused_reply_do_not_count(line):
    def change(reply):
        return with_array(lambda honest: b"")(with_metrics(lambda: {"m": 1e6})(reply))

    assert metrics_of_round(change, line=line)["m"] == 1.0


def test_a_metric_counts_by_examples_within_their_bound():
    """Client 0 claims 10^9 examples; the others have 20, 30 and 40, so that it counts for 10 times 30."""
    change = with_metrics(lambda: {"m": 14.0, "num-examples": 10**9})
    found = metrics_of_round(change, line=False)
    assert found["m"] == pytest.approx((300 * 14.0 + 90) / 390)
    assert "num-examples" not in found
