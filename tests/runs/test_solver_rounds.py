"""Solvers, compressors and server optimisers in whole rounds: quadratics by hand, and the digits with real clients."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import TrainingConfig
from fedsel_app.messages.scalars import Report
from fedsel_app.solvers import EQUATIONS, Steps, Weights
from fedsel_app.wire.codec import Update
from strategies.aggregation.server_state import ServerSolver
from tests.support.in_process import run_in_process

# F_i(y) = (y - b_i)' diag(a_i) (y - b_i) / 2: the mean's minimum is sum a_i b_i / sum a_i, entry by entry.
CURVATURE = np.array([[1.0, 4.0], [5.0, 0.5]])
CENTRE = np.array([[2.0, -1.0], [-1.0, 3.0]])
OPTIMUM = (CURVATURE * CENTRE).sum(axis=0) / CURVATURE.sum(axis=0)
LR = 0.05


def rounds_on_quadratics(solver, rounds, steps, momentum=0.0, alpha=1.0, present=((0, 1),)):
    """Local steps on exact gradients, everything else by the solver's own parts."""
    training = TrainingConfig(solver=solver, momentum=momentum, feddyn_alpha=alpha)
    server, equations = ServerSolver(2, 2, training), EQUATIONS[solver]
    weights, states, control = np.zeros(2), [{}, {}], np.zeros(2, np.float32)
    for number in range(rounds):
        here = present[number % len(present)]
        updates, controls, effective = [], [], []
        for client in here:
            term = equations.term(states[client], control)
            local, buffer = weights.copy(), np.zeros(2)
            for _ in range(steps[client]):
                gradient = CURVATURE[client] * (local - CENTRE[client]) + (0 if term is None else term)
                gradient = gradient + (alpha * (local - weights) if solver == "feddyn" else 0)
                buffer = momentum * buffer + gradient
                local = local - LR * buffer
            delta = (local - weights).astype(np.float32)
            walked = Steps(delta, training.effective_steps(steps[client]), LR, training.proximal)
            states[client], change = equations.state(states[client], control, walked)
            updates.append(Update(2, None, delta))
            controls += [] if change is None else [Update(2, None, change)]
            effective.append(training.effective_steps(steps[client]))
        equal = Weights(np.ones(len(here)), float(len(here)))
        own, divisor = server.weights(equal, {Report.EFFECTIVE_STEPS: np.array(effective)})
        shares = own / divisor
        aggregate = sum(share * update.values for share, update in zip(shares, updates, strict=True))
        weights = weights + server.step(aggregate, updates, controls)
        if solver == "scaffold":
            control = server.state()["mean"].astype(np.float32)
    return weights, states, server


def distance(solver, rounds=400, steps=(20, 20), **changed):
    return float(np.abs(rounds_on_quadratics(solver, rounds, steps, **changed)[0] - OPTIMUM).max())


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_many_local_steps_miss_the_optimum_and_scaffold_and_feddyn_do_not(momentum):
    assert distance("sgd", momentum=momentum) > 0.3
    assert distance("scaffold", momentum=momentum) < 1e-4
    assert distance("feddyn", momentum=momentum) < 1e-4


@pytest.mark.parametrize(("solver", "memory"), [("scaffold", "control"), ("feddyn", "gradient")])
def test_at_the_optimum_each_client_remembers_its_gradient_and_the_server_none(solver, memory):
    _, states, server = rounds_on_quadratics(solver, 400, (20, 20))
    for client in range(2):
        expected = CURVATURE[client] * (OPTIMUM - CENTRE[client])
        np.testing.assert_allclose(states[client][memory], expected, atol=1e-4)
    np.testing.assert_allclose(server.state()["mean"], 0.0, atol=1e-4)
    np.testing.assert_allclose(server.state()["mean"], sum(state[memory] for state in states) / 2, atol=1e-4)


def test_unequal_steps_pull_fedavg_to_who_steps_most_and_fednova_not():
    """With few steps of a small rate the bias of the objective is all the bias there is."""
    steps = (1, 8)
    assert distance("sgd", steps=steps) > 0.5
    assert distance("fednova", steps=steps) < 0.5 * distance("sgd", steps=steps)
    np.testing.assert_allclose(
        rounds_on_quadratics("fednova", 30, (6, 6))[0], rounds_on_quadratics("sgd", 30, (6, 6))[0], rtol=1e-12
    )


# Through clients and wire


def run(tmp_path, rounds=2, **settings):
    quick = {
        "clients": 4,
        "cohort": 3,
        "local_steps": 3,
        "strategy": "random",
        "kept_warmup_rounds": 0,
        "device": "cpu",
    }
    return run_in_process(tmp_path / "run", rounds=rounds, state_dir=str(tmp_path), **(quick | settings))


SIZE = 650
MODEL_BYTES = 4 * SIZE
PLAIN = {"compressor": "none"}


def test_scaffold_is_charged_for_its_control_variates(tmp_path):
    _, rows = run(tmp_path, solver="scaffold")
    _, plain = run(tmp_path / "plain", solver="sgd")
    for row, bare in zip(rows, plain, strict=True):
        dense = 28 + 4 * SIZE
        assert row["downlink_bytes"] == 3 * 2 * MODEL_BYTES == 2 * bare["downlink_bytes"]
        assert row["uplink_bytes"] > 3 * dense
        assert row["uplink_value_bytes"] == bare["uplink_value_bytes"] + 3 * 4 * SIZE
    assert rows[0]["uplink_bytes"] == plain[0]["uplink_bytes"] + 3 * (28 + 4 * SIZE)
    assert rows[1]["fit_losses"] != plain[1]["fit_losses"]


def test_the_first_round_of_scaffold_and_feddyn_is_that_of_their_plain_forms(tmp_path):
    """Nobody remembers anything yet: SCAFFOLD is SGD, and FedDyn's clients are FedProx with mu = alpha."""
    mean = {"server_optimizer": "mean", **PLAIN}
    losses = {}
    for name, changed in {
        "sgd": {"solver": "sgd"},
        "scaffold": {"solver": "scaffold"},
        "fednova": {"solver": "fednova"},
        "fedprox": {"solver": "fedprox", "mu": 0.7},
        "feddyn": {"solver": "feddyn", "feddyn_alpha": 0.7},
    }.items():
        losses[name] = [row["fit_losses"] for row in run(tmp_path / name, **mean, **changed)[1]]
    assert losses["sgd"][0] == losses["scaffold"][0] == losses["fednova"][0]
    assert losses["fedprox"][0] == losses["feddyn"][0] != losses["sgd"][0]
    assert losses["fedprox"][1] != losses["feddyn"][1]
    assert losses["sgd"][1] != losses["scaffold"][1]


@pytest.mark.parametrize(("bits", "sent"), [(32, 256), (16, 130), (8, 65), (4, 33)])
def test_values_of_few_bits_cost_that_and_count_as_32_in_the_papers(tmp_path, bits, sent):
    thin = {"kept_fraction": 0.1, "kept_cosine": 0.0, "allocation": "uniform", "link_cap": "none"}
    _, rows = run(tmp_path, compressor="rand-k", value_bits=bits, **thin)
    for row in rows:
        # Header and check sum, the seeded indices' check sum, one norm, the values.
        assert row["uplink_bytes"] == 3 * (28 + 4 + 4 + sent)
        assert row["uplink_value_bytes"] == 3 * 4 * 65


@pytest.mark.parametrize("value_bits", [32, 4])
def test_under_ef21_both_sides_keep_the_same_estimate_and_a_lost_reply_starts_it_anew(tmp_path, value_bits):
    estimated = []

    def lose_one(client, message, reply):
        number = message.instruction.server_round
        estimated.append((number, client, message.instruction.estimated))
        return replace(reply, tensors=[]) if (number, client) == (2, 1) else reply

    settings = {
        "error_feedback_scheme": "ef21",
        "cohort": 4,
        "kept_fraction": 0.1,
        "rounds": 4,
        "value_bits": value_bits,
    }
    strategy, rows = run(tmp_path, on_fit=lose_one, **settings)
    assert [row["aggregated"] for row in rows] == [[0, 1, 2, 3], [0, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert sorted(estimated) == [
        (number, client, number > 1 and (number, client) != (3, 1)) for number in range(1, 5) for client in range(4)
    ]
    stored = sorted(tmp_path.glob("fedsel-state/*/client-*/round-4.npz"), key=lambda path: path.parent.name)
    assert len(stored) == 4
    for client, path in enumerate(stored):
        with np.load(path, allow_pickle=False) as state:
            assert strategy.run.server.estimates.state()[str(client)].tobytes() == state["estimate"].tobytes()
