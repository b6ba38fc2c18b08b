"""Attacks that set or move a bound: one hostile client whose numbers are averaged with few others or none (U1 to U3).

Before: one answer to a calibration took 0.933 to 0.100 for the rest of the run. An update x -1e6 was taken if no other
client replied, or lifted the bound of later rounds: 0.939 to 0.100.
"""

from dataclasses import replace

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from torch import nn

import fedsel_app
from fedsel_app.config import ConfigError, EnrolmentConfig
from fedsel_app.data.arrays import sums
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import CalibrateInstruction
from fedsel_app.wiring.configuration import resolve
from strategies.round.clients import ConnectedClients
from strategies.round.federation import Reply
from strategies.round.replies.values import read_tests
from strategies.round.replies.values import tested_loss as loss_of_tests
from strategies.run_context import Admission
from tests.attacks.test_robust_rules import lying, scaled
from tests.bits.cases import NORMED
from tests.support.contexts import context_of
from tests.support.in_process import run_in_process
from tests.support.in_process_grid import InProcessGrid
from tests.support.logs import logged
from tests.support.own_app import CLIENTS, by_name, model, node, register
from tests.support.rounds import read_rows
from tests.support.stubs import StubClient, StubFederation, as_sent, round_of

pytestmark = pytest.mark.usefixtures("task_identity")
FIVE = {"clients": 5, "cohort": 5, "rounds": 8, "local_steps": 5, "lr": 0.05, "curvature_layers": 0}
FIVE |= {"strategy": "random", "threads": 1, "seed": 3, "device": "cpu"}
BATCH_NORM = FIVE | NORMED | {"rounds": 6}
ALONE = {
    "asynchronous": {"waiting": "asynchronous", "server_optimizer": "mean"},
    "buffer of one": {"waiting": "buffered", "buffer_size": 1},
    "cohort of one": {"cohort": 1},
}
LIAR = 4


def accuracies(folder, on_fit=lambda client, message, reply: reply, **settings):
    """Accuracy and failures of each round."""
    _, rows = run_in_process(folder, on_fit, **settings)
    return [row["accuracy"] for row in rows if "accuracy" in row], [row["failures"] for row in rows]


def false_statistics(since):
    """Hook: client 0 answers 1e6 as each buffer, in calibrations and beside its updates, and is honest otherwise."""

    def on_fit(client, message, reply):
        if client or round_of(message) < since:
            return reply
        calibrates = isinstance(message.instruction, CalibrateInstruction)
        if not calibrates and len(reply.tensors) == 1:
            return reply
        return replace(reply, tensors=[*reply.tensors[:-1], *as_sent(np.full(8, 1e6, np.float32))])

    return on_fit


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"calibration_form": "training"},
        pytest.param({"aggregation": "median", "compressor": "none"}, marks=pytest.mark.slow),
        ALONE["asynchronous"] | {"rounds": 15},
    ],
    ids=str,
)
def test_false_statistics_of_one_client_of_five_cost_little(tmp_path, settings):
    """U1: at 0.933 the global model fell to 0.100, in the first such round and in all later ones."""
    honest, _ = accuracies(tmp_path / "honest", **BATCH_NORM | settings)
    lied, failures = accuracies(tmp_path / "lied", false_statistics(3), **BATCH_NORM | settings)
    assert np.mean(lied) >= np.mean(honest) - 0.03
    said = [failure for each in failures for failure in each]
    assert {failure["client"] for failure in said} <= {0}
    assert all(failure["reason"].startswith("calibration: its BatchNorm statistics") for failure in said)
    assert said or "waiting" in settings


def only_the_liar_replies(number):
    """Hook: an update x -1e6 of the liar in round `number` and all later ones, and no usable reply of others in it."""
    lie = lying(scaled(-1e6), {LIAR}, since=number)

    def on_fit(client, message, reply):
        lost = client != LIAR and round_of(message) == number
        return replace(reply, metrics={}) if lost else lie(client, message, reply)

    return on_fit


@pytest.mark.parametrize(("number", "least"), [(1, 1), (3, 3)])
def test_a_lone_reply_neither_passes_nor_lifts_the_bound_of_norms(tmp_path, number, least):
    """U2: taken at once, or, with `min-returned`, in every round from 15 on, after 0.939."""
    settings = FIVE | {"model": "logistic", "rounds": 10, "min_returned": least, "cohort": 5}
    honest, _ = accuracies(tmp_path / "honest", **settings)
    lied, failures = accuracies(tmp_path / "lied", only_the_liar_replies(number), **settings)
    assert lied[-1] >= honest[-1] - 0.03
    left_out = [[failure["client"] for failure in each] for each in failures]
    assert left_out == [[]] * (number - 1) + [[0, 1, 2, 3, LIAR]] + [[LIAR]] * (10 - number)
    assert "see 'max-update-norm'" in failures[-1][0]["reason"]


@pytest.mark.parametrize(("factor", "left_out"), [(1e-9, []), (-1e5, [0])])
def test_of_two_clients_none_leaves_the_other_out_by_its_norm(tmp_path, factor, left_out):
    """An update x 1e-9 set the bound: the honest client was left out of all rounds, 0.136 instead of 0.925."""
    settings = FIVE | {"model": "logistic", "clients": 2, "cohort": 2}
    scores, failures = accuracies(tmp_path, lying(scaled(factor), {0}), **settings)
    assert [[failure["client"] for failure in each] for each in failures] == [left_out] * 8
    assert scores[-1] > 0.6


def test_false_means_do_not_hide_behind_large_variances(tmp_path):
    """A user's own app: beside variances of about 1e6, means moved by 1e4 passed as typical."""
    app = register(ClientApp(), [])

    def answer(message, context):
        reply, client = app(message, context), context.node_config["partition-id"]
        if "arrays" in reply.content:
            arrays = reply.content["arrays"].to_numpy_ndarrays()
            arrays[2] = np.float32([1e6, 2e6]) * np.float32(1 + 0.1 * client)
            arrays[1] += np.float32(1e4 * (client == 0))
            reply.content["arrays"] = by_name(arrays)
        return reply

    grid = InProcessGrid(answer, {90 + client: node(client) for client in range(CLIENTS)})
    built = fedsel_app.strategy("random", clients=CLIENTS, cohort=CLIENTS, links="simulated", out=str(tmp_path / "run"))
    result = built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=1)
    assert np.abs(result.arrays.to_numpy_ndarrays()[1]).max() <= 0.3
    [[failure]] = [row["failures"] for row in read_rows(tmp_path / "run")]
    assert failure["client"] == 0


def without_the_liar(client, message, reply):
    """Hook: no reply of the liar is usable."""
    return replace(reply, metrics={}) if client == LIAR else reply


@pytest.mark.parametrize("settings", ALONE.values(), ids=ALONE)
def test_the_bound_of_norms_holds_where_one_reply_is_taken_at_a_time(tmp_path, settings):
    """U3: it did nothing, and accuracy fell to 0.100 or 0.103. A reply that is left out takes a step of the server."""
    settings = FIVE | {"model": "logistic", "rounds": 20, "eval_every": 20} | settings
    _, failures = accuracies(tmp_path / "honest", **settings)
    assert failures == [[]] * 20
    absent, _ = accuracies(tmp_path / "absent", without_the_liar, **settings)
    lied, failures = accuracies(tmp_path / "lied", lying(scaled(-1e6), {LIAR}), **settings)
    assert lied[-1] >= absent[-1] - 0.1
    assert {failure["client"] for each in failures for failure in each} == {LIAR}


@pytest.mark.parametrize(
    "lie", [[1e9, 0, 0], [20, 2e13, 4e25], [20, -20e3, 20e9]], ids=["examples", "mean", "deviation"]
)
def test_sums_for_the_normalisation_have_a_bound(lie):
    """One of four clients, with about the mean 50 and the deviation 3 each, set the normalisation of all."""
    rng, summed = np.random.default_rng(0), []
    honest = [sums(rng.normal(50, 3, (20, 1)).astype(np.float32)) for _ in range(3)]

    def scale(moments):
        summed.append(moments)
        return "scaled"

    def enrolled(rows):
        stubs = [
            StubClient(client, properties=EnrolAnswer(client, 20, own_data=True, moments=row.tobytes()).to_config())
            for client, row in enumerate(rows)
        ]
        admission = Admission(schema="plain", scale=scale, channels=1, example_clip=10.0)
        ConnectedClients(len(rows), EnrolmentConfig(), admission=admission).enrol(StubFederation(stubs), wait=True)
        return summed[-1]

    assert enrolled(honest).tolist() == np.sum(honest, axis=0).tolist()
    with logged() as log:
        count, total, squares = enrolled([*honest, np.array(lie, "<f8")])
    assert "the sums over the data of clients [3] count only as far as" in log()
    assert count <= 80
    assert abs(total / count - 50) <= 10
    assert squares / count - (total / count) ** 2 <= 30**2


@pytest.mark.parametrize("lie", [1e18, -1e18])
def test_a_loss_of_a_test_counts_for_at_most_ten_medians(lie):
    said = {client: Reply(examples=10, loss=loss) for client, loss in enumerate([0.4, 0.5, 0.6, lie])}
    tested, _ = loss_of_tests(read_tests(said, 1, context_of()))
    assert abs(tested) <= (0.4 + 0.5 + 0.6 + 10 * 0.5) / 4


@pytest.mark.parametrize(("score", "most"), [("mse", 5.0), ("r2", 10.0)])
def test_a_score_without_bounds_counts_for_at_most_ten_medians(score, most):
    """With local BatchNorm the mean of the clients' scores chose the best model: one liar chose it."""
    lie = 1e18 if score == "mse" else -1e18
    said = {client: Reply({score: each}, (), 10, 0.5) for client, each in enumerate([0.4, 0.5, 0.6, lie])}
    tested = read_tests(said, 1, context_of(), [score])
    assert [answer.scores[score] for answer in tested.values()] == [0.4, 0.5, 0.6, np.copysign(most, lie)]


def zeros(sample_shape, classes):
    """Logistic regression that starts at zero."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(sample_shape)), classes))
    nn.init.zeros_(module[1].weight)
    nn.init.zeros_(module[1].bias)
    return module


@pytest.mark.parametrize("settings", ALONE.values(), ids=ALONE)
def test_single_replies_train_a_model_that_starts_at_zero(tmp_path, settings):
    model = "tests.attacks.test_moving_bounds:zeros"
    scores, failures = accuracies(tmp_path, **FIVE | {"model": model} | settings)
    assert failures == [[]] * 8
    assert scores[-1] > 0.3


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"aggregation": "median", "waiting": "buffered", "buffer-size": 2, "staleness": "constant"}, "'buffer-size'"),
        ({"aggregation": "trimmed-mean", "cohort": 2}, "Set 'cohort' to at least 3"),
        ({"calibration-form": "sequential", "model": "resnet18"}, "Set 'calibration-form' to average"),
    ],
)
def test_what_one_client_could_set_alone_is_refused(settings, remedy):
    with pytest.raises(ConfigError, match=remedy):
        resolve({"strategy": "random"} | settings)
