"""Metrics of clients: their means as Flower's FedAvg computes them, the user's own functions, and what is left out."""

import pytest
from flwr.app import MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedsel_app
from simulation.apps.server.results import aggregated_records, mean_metrics
from tests.support.hostile_replies import with_array, with_metrics
from tests.support.in_process_grid import InProcessGrid
from tests.support.logs import logged
from tests.support.own_app import CLIENTS, by_name, model, node, register

pytestmark = pytest.mark.usefixtures("task_identity")


def replies(*metrics):
    """Partition id -> the records of a client with these metrics."""
    return {client: RecordDict({"mine": MetricRecord(dict(found))}) for client, found in enumerate(metrics)}


def test_what_is_not_finite_is_left_out_and_told():
    told = replies(
        {"loss": 1.0, "f1": float("nan")},
        {"loss": 4.0, "f1": 0.5},
        {"f1": float("-inf"), "a list": [1.0, float("inf")]},
    )
    with logged() as log:
        found = aggregated_records(told, {0: 10.0, 1: 30.0, 2: 60.0}, "n", None, 5)
    assert found == MetricRecord({"f1": 0.5, "loss": (10 * 1.0 + 30 * 4.0) / 40})
    assert log().splitlines() == [
        "Round 5: metrics of client 0 are left out, because they are not finite: f1",
        "Round 5: metrics of client 2 are left out, because they are not finite: f1, a list",
    ]


def test_a_metric_of_another_length_is_left_out_and_told():
    with logged() as log:
        found = mean_metrics([(1.0, {"a": [1.0]}), (1.0, {"a": [2.0, 4.0]}), (3.0, {"a": [6.0, 8.0]})], 2)
    assert found == {"a": [5.0, 7.0]}
    assert "Round 2: the metric a has 2 lengths. Only the most frequent one counts: a list of 2" in log()


def test_a_users_own_function_that_fails_ends_no_run():
    with logged() as log:
        assert aggregated_records(replies({"n": 1}), {0: 1.0}, "n", lambda records, key: records[0]["yours"], 3) is None
    assert "Round 3 has no metrics of the clients: the function <lambda> failed with KeyError('yours')" in log()


def metrics_of_round(change, *, line, **options):
    """Clients' metrics of a round in which client 0 changes its replies; the metric m of the others is 1."""
    app = register(fedsel_app.client_app() if line else ClientApp(), [], {"m": 1.0})

    def answer(message, context):
        reply = app(message, context)
        asked = message.metadata.message_type in ("train", "evaluate")
        return change(reply) if asked and context.node_config["partition-id"] == 0 else reply

    grid = InProcessGrid(answer, {90 + client: node(client) for client in range(CLIENTS)})
    built = fedsel_app.strategy("random", clients=CLIENTS, cohort=CLIENTS, links="simulated", **options)
    result = built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=1)
    return result.train_metrics_clientapp[1], result.evaluate_metrics_clientapp[1]


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
def test_metrics_of_a_refused_reply_do_not_count(line):
    def change(reply):
        spoiled = with_metrics(lambda: {"m": 1e6, "num-examples": 10})(reply)
        return with_array(lambda honest: b"")(spoiled) if reply.content.array_records else spoiled

    assert metrics_of_round(change, line=line)[0]["m"] == 1.0


@pytest.mark.parametrize("claim", [0, -3, float("nan"), float("inf"), 10**9 + 1, None])
def test_an_evaluation_without_a_number_of_examples_is_left_out_and_told(claim):
    def change(reply):
        changed = with_metrics(lambda: {"eval_acc": 1e6, "num-examples": claim or 0})(reply)
        if claim is None:
            del changed.content["metrics"]["num-examples"]
        return changed

    with logged() as log:
        _, tests = metrics_of_round(change, line=False)
    assert tests["eval_acc"] == 0.5
    reason = "the evaluation of client 0 is left out: its metric num-examples must be above 0"
    told = f"It reports {'only accuracy, eval_acc, eval_loss' if claim is None else claim}"
    assert (reason in log() and told in log()) == (claim != 0)  # of 0 examples the training has told


def test_a_metric_counts_by_examples_within_their_bound():
    """Client 0 claims 10^9 examples; the others have 20, 30 and 40, so that it counts for 10 times 30."""
    change = with_metrics(lambda: {"m": 14.0, "eval_acc": 14.0, "num-examples": 10**9})
    trained, tested = metrics_of_round(change, line=False, example_clip=10.0)
    assert trained["m"] == pytest.approx((300 * 14.0 + 90) / 390)
    assert tested["eval_acc"] == pytest.approx((300 * 14.0 + 0.5 * 90) / 390)
    assert "num-examples" not in trained
    assert "num-examples" not in tested
