"""ISP on quadratics: the search by hand, its costs, and what it leaves alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.common import parameters_to_ndarrays

from fedsel_app.wire import Update
from simulation.network import NetworkConfig, SimulatedLinks
from strategies.isp import ISP, best_relative, first_improvement, mixed, moving_average
from strategies.participation import ParticipationConfig
from strategies.power_of_choice import PowerOfChoice, PowerOfChoiceConfig
from strategies.random_selection import RandomConfig, RandomSelection
from strategies.roster import Round
from strategies.server_optimizer import ServerConfig
from strategies.trial import known_to
from tests.strategies.setups import make_roster, make_setup
from tests.strategies.stubs import (
    Rows,
    StubProxy,
    manager_of,
    npy_bytes,
    run_rounds,
    update_reply,
    without_wall,
)

CLIENTS = 8
MODEL_BYTES = npy_bytes(np.zeros(CLIENTS, np.float32))
REPLY_BYTES = 28 + 1 + 4
"""One entry of eight: header and checksum, a bitmap, a value."""


def bits(arrays):
    return [array.tobytes() for array in arrays]


def own_direction(length):
    """Client k moves its own entry alone: the mean of m clients is length / sqrt(m) away from where it started."""

    def fit(client, ins):
        update = Update(CLIENTS, np.array([client], np.uint32), np.array([length], np.float32))
        return update_reply(update, client, ins.config["round"])

    return fit


def ring(radius=1.0):
    """A loss that is 1 at the origin, below 1 within `radius`, and above outside."""

    def loss(parameters, _):
        norm = float(np.linalg.norm(parameters))
        return 1.0 if norm == 0 else (0.5 if norm < radius else 1.5)

    return loss


def setup_for(surrogate=None, *, rounds=1, cohort=2, method=None, server=None, **policy):
    settings = {"isp_loss": "clients"} if surrogate is None else {"isp_loss": "surrogate", "surrogate_path": "x.npz"}
    setup = make_setup(method or RandomConfig(), clients=CLIENTS, cohort=cohort, rounds=rounds, size=CLIENTS)
    return replace(
        setup,
        recorder=Rows(),
        links=SimulatedLinks(NetworkConfig(), CLIENTS, setup.run.seed),
        server=server or ServerConfig(),
        participation=ParticipationConfig(**{"participation": "isp", "isp_momentum": 1.0} | settings | policy),
        surrogate=surrogate,
    )


def run_isp(setup, length=1.9, kind=RandomSelection, **options):
    """The rows of a run over clients that move their own direction, and the clients."""
    proxies = [StubProxy(client, own_direction(length), **options) for client in range(CLIENTS)]
    rows, arrays = run_rounds(kind(setup), manager_of(proxies), setup.run.rounds)
    return rows, proxies, arrays


# The parts, by hand


def test_the_moving_average_of_five_losses():
    losses = [3.0, 1.0, 2.0]
    assert moving_average(losses, 0.5) == (3 / 2 + 1 / 2) / 2 + 1
    assert moving_average(losses, 1.0) == 2.0
    assert moving_average([4.0], 1 / 3) == 4.0
    weights = np.array([(2 / 3) ** 4, *(1 / 3 * (2 / 3) ** age for age in (3, 2, 1, 0))])
    assert moving_average([5, 4, 3, 2, 1], 1 / 3) == pytest.approx(weights @ [5, 4, 3, 2, 1])


def test_the_search_ends_at_the_first_improvement():
    seen = []

    def improvement(m):
        seen.append(m)
        return {1: -1.0, 3: 0.0, 5: 0.1, 7: 9.0}[m]

    assert first_improvement(range(1, 9, 2), improvement) == (5, [-1.0, 0.0, 0.1])
    assert seen == [1, 3, 5]
    assert first_improvement([1, 2], lambda m: float("nan"))[0] is None


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_relative_improvement_is_the_largest_of_all(exponent):
    gains = np.random.default_rng(3).normal(size=40)
    best = max(range(1, 41), key=lambda m: (gains[m - 1] / m**exponent, -m))
    assert best_relative(range(1, 41), gains.tolist(), exponent) == best


def test_of_equal_relative_improvements_the_fewest_clients_and_numbers_only():
    assert best_relative([1, 2, 4], [1.0, 2.0, 4.0], 1.0) == 1
    assert best_relative([1, 2], [float("nan"), -1.0], 1.0) == 2
    assert best_relative([1, 2], [float("nan"), float("-inf")], 1.0) is None


def test_what_is_found_is_mixed_with_what_was():
    assert mixed(4, 20, 0.5) == 12
    assert mixed(1, 2, 0.5) == 2
    assert mixed(3, 4, 0.5) == 4
    assert mixed(7, 100, 1.0) == 7
    assert mixed(0, 0, 0.5) == 1


# The search


def test_improvement_that_starts_at_four_is_found_as_four_and_not_a_client_more_is_tried():
    # 1.9 / sqrt(m) < 1 from m = 4 on.
    [row], _, _ = run_isp(setup_for(ring()))
    search = row["search"]
    assert search["found"] == row["cohort"] == len(row["selected"]) == 4
    assert search["tried"] == [1, 2, 3, 4]
    assert search["losses"] == [1.5, 1.5, 1.5, 0.5]
    assert search["global_loss"] == 1.0
    # The moving average of f(w) and the candidates' loss.
    assert search["improvements"] == pytest.approx([-0.5 / 3, -0.5 / 3, -0.5 / 3, 0.5 / 3])


def test_a_method_that_always_improves_is_given_one_client():
    [row], _, _ = run_isp(setup_for(ring()), length=0.5)
    assert (row["search"]["found"], row["cohort"]) == (1, 1)


def test_the_step_skips_numbers():
    [row], _, _ = run_isp(setup_for(ring(), isp_step=2))
    assert row["search"]["tried"] == [1, 3, 5]
    assert row["cohort"] == 5


@pytest.mark.parametrize(("rule", "cohort"), [("all", 8), ("keep", 3)])
def test_where_no_number_helps(rule, cohort):
    [row], _, _ = run_isp(setup_for(ring(), isp_if_none=rule, isp_first=3), length=9.0)
    assert row["search"]["found"] is None
    assert row["search"]["tried"] == list(range(1, 9))
    assert row["cohort"] == cohort


def test_momentum_from_the_first_number_and_between_searches():
    settings = {"isp_momentum": 0.5, "isp_first": 8, "isp_interval": 2}
    rows, _, _ = run_isp(setup_for(lambda w, _: -1.0 if np.any(w) else 1.0, rounds=5, **settings))
    # Round 1 finds 1 and mixes it with 8; nothing improves on -1 later: all 8.
    assert [row["cohort"] for row in rows] == [4, 4, 6, 6, 7]
    assert ["search" in row for row in rows] == [True, False, True, False, True]
    assert rows[2]["search"]["found"] is None


def test_isp_ri_tries_every_number_and_takes_the_best_ratio():
    losses = dict(enumerate((0.9, 0.5, 0.2, 0.15, 0.1, 0.1, 0.1, 0.1), start=1))

    def loss(parameters, _):
        return losses[np.count_nonzero(parameters)] if np.any(parameters) else 1.0

    [row], _, _ = run_isp(setup_for(loss, participation="isp-ri"))
    best = max(losses, key=lambda m: (1.0 - losses[m]) / m)
    assert row["search"]["tried"] == list(range(1, 9))
    assert row["cohort"] == best == 3
    [squared], _, _ = run_isp(setup_for(loss, participation="isp-ri", isp_relative_exponent=0.0))
    assert squared["cohort"] == 5


def test_the_losses_of_the_last_rounds_smooth_the_search():
    policy = ISP(setup_for(ring(), isp_window=3))
    for number, loss in enumerate((9.0, 4.0, 3.0, 2.0), start=1):
        policy.observe(number, loss)
    assert policy.state()["rounds"].tolist() == [2, 3, 4]
    assert policy.state()["losses"].tolist() == [4.0, 3.0, 2.0]


def test_the_state_round_trips_and_goes_on_identically():
    setup = setup_for(ring())
    policy, other = ISP(setup), ISP(setup)
    policy.observe(3, 0.25)
    other.load_state(policy.state())
    assert {name: array.tolist() for name, array in other.state().items()} == {
        "count": 2,
        "rounds": [3],
        "losses": [0.25],
    }


# What it costs and what it leaves alone


def test_the_intermediate_exchanges_and_bytes_are_counted_and_tests_are_probes():
    [row], proxies, _ = run_isp(setup_for(ring()))
    assert row["exchanges"] == CLIENTS + 4
    assert row["uplink_bytes"] == (CLIENTS + 4) * REPLY_BYTES
    assert row["paper_uplink_bytes"] == (CLIENTS + 4) * 4
    assert row["downlink_bytes"] == (CLIENTS + 4) * MODEL_BYTES
    assert row["probe_bytes"] == 0
    assert sum(len([kind for kind, _ in proxy.asked if kind == "evaluate"]) for proxy in proxies) == 0
    uplinks, step_s = SimulatedLinks(NetworkConfig(), CLIENTS, 42).observe(1, np.full(CLIENTS, np.nan))
    seconds = 2 * step_s + 8 * REPLY_BYTES / uplinks
    assert row["round_s"] == pytest.approx(seconds.max() + seconds[row["selected"]].max())


def test_without_a_surrogate_only_the_subset_tests_a_candidate_and_each_subset_once():
    # Clients always answer 1: no m helps, so all 8 sizes are tried.
    [row], proxies, _ = run_isp(setup_for(isp_draws=3), loss=1.0)
    tests = [ins for proxy in proxies for kind, ins in proxy.asked if kind == "evaluate"]
    assert {ins.config["task"] for ins in tests} == {"test"}
    assert row["probe_bytes"] == len(tests) * (MODEL_BYTES + 8)
    # Everybody tests w and, once, the candidate of all 8; three draws of m test at most 3 m times.
    assert len(tests) <= 8 + 3 * sum(range(1, 8)) + 8
    for proxy in proxies:
        for _, ins in [asked for asked in proxy.asked if asked[0] == "evaluate"]:
            [model] = parameters_to_ndarrays(ins.parameters)
            assert not model.any() or model[proxy.client] > 0, "a candidate is tested by its own clients"
    assert row["round_s"] > run_isp(setup_for(ring()))[0][0]["round_s"]


def test_clients_train_the_intermediate_round_without_keeping_state_and_then_the_round():
    _, proxies, _ = run_isp(setup_for(ring()))
    fits = [[ins.config for kind, ins in proxy.asked if kind == "fit"] for proxy in proxies]
    assert all(first["keep-state"] is False for first, *_ in fits)
    seconds = [rest[0] for _, *rest in fits if rest]
    assert len(seconds) == 4
    assert all("keep-state" not in config for config in seconds)


@pytest.mark.parametrize("optimizer", ["momentum", "mean", "fedadam", "fedyogi", "fedadagrad"])
def test_a_discarded_search_leaves_no_trace_in_the_model(optimizer):
    """With a search that finds the cohort there was, the run is the one without a search, bit for bit."""
    server = ServerConfig(server_optimizer=optimizer, server_lr=0.1)
    searched = setup_for(lambda w, _: 1.0, rounds=3, server=server, isp_if_none="keep", isp_interval=1)
    plain = replace(searched, participation=ParticipationConfig(), recorder=Rows())
    rows, _, arrays = run_isp(searched)
    plain_rows, _, plain_arrays = run_isp(plain)
    assert bits(arrays) == bits(plain_arrays)
    assert [row["selected"] for row in rows] == [row["selected"] for row in plain_rows]


def test_aggregated_searches_are_rounds_of_everybody():
    rows, proxies, _ = run_isp(setup_for(ring(), rounds=2, isp_intermediate="aggregate"))
    assert [row["cohort"] for row in rows] == [8, 4]
    assert [row["exchanges"] for row in rows] == [8, 4]
    assert rows[0]["search"]["found"] == 4
    assert all("keep-state" not in ins.config for proxy in proxies for kind, ins in proxy.asked if kind == "fit")


def test_a_sample_trains_for_the_search():
    [row], proxies, _ = run_isp(setup_for(ring(), isp_sample=0.6))
    trained = [
        proxy for proxy in proxies if any("keep-state" in ins.config for kind, ins in proxy.asked if kind == "fit")
    ]
    assert len(trained) == 5
    assert row["cohort"] == 4
    assert row["exchanges"] == 5 + 4


def test_everybody_trains_for_the_search_also_where_the_method_draws_some_twice():
    class Twice(RandomSelection):
        def select(self, roster, now, count, rng):
            return super().select(roster, now, (count + 1) // 2, rng)

    [row], _, _ = run_isp(setup_for(ring()), kind=Twice)
    # Half of 7 are 4: 8 of the intermediate round, and 4.
    assert (row["cohort"], row["exchanges"]) == (7, CLIENTS + 4)


def test_clients_that_fail_are_not_drawn_and_a_round_without_any_keeps_the_number():
    def half(client, ins):
        if client % 2 and "keep-state" in ins.config:
            return RuntimeError("gone")
        return own_direction(1.9)(client, ins)

    for fit, found in ((half, 4), (lambda client, ins: RuntimeError("gone"), None)):
        proxies = [StubProxy(client, fit) for client in range(CLIENTS)]
        [row], _ = run_rounds(RandomSelection(setup_for(ring())), manager_of(proxies), 1)
        assert row["search"].get("found") == found
        assert row["cohort"] == (found or 2)
        assert [failure["client"] for failure in row["search"]["failures"]] == ([1, 3, 5, 7] if found else [*range(8)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_losses_that_are_no_numbers_help_nobody(bad):
    [row], _, _ = run_isp(setup_for(lambda w, _: bad if np.any(w) else 1.0))
    assert row["search"]["found"] is None
    [row], _, _ = run_isp(setup_for(lambda w, _: bad))
    assert row["cohort"] == CLIENTS


def test_a_method_that_probes_sees_its_own_candidates_losses_only():
    asked = []

    class Watched(PowerOfChoice):
        def select(self, roster, now, count, rng):
            asked.append((count, int(np.isfinite(roster.losses).sum())))
            return super().select(roster, now, count, rng)

    method = PowerOfChoiceConfig(candidates=4)
    [row], proxies, _ = run_isp(setup_for(ring(), method=method, isp_draws=2), kind=Watched)
    assert row["cohort"] == 4
    # Everybody for the intermediate round: no candidates; then d = 4 of 8 until m = d, where nobody is compared.
    assert asked == [(8, 0), *((m, 4) for m in (1, 1, 2, 2, 3, 3)), (4, 0), (4, 0), (4, 0)]
    probes = [ins for proxy in proxies for kind, ins in proxy.asked if kind == "evaluate"]
    assert len(probes) == CLIENTS
    assert row["probe_bytes"] == CLIENTS * (MODEL_BYTES + 8)


def test_the_same_seed_gives_the_same_search_in_whatever_order_clients_connect():
    found = []
    for order in (range(CLIENTS), reversed(range(CLIENTS))):
        proxies = [StubProxy(client, own_direction(1.9)) for client in order]
        rows, arrays = run_rounds(RandomSelection(setup_for(ring(), rounds=3)), manager_of(proxies), 3)
        found.append((json.dumps(without_wall(rows)), bits(arrays)))
    assert found[0] == found[1]


def test_the_view_hides_clients_and_losses_and_leaves_the_roster():
    roster = make_roster(4, losses=[1.0, 2.0, 3.0, 4.0])
    view = known_to(roster, np.array([0, 2]), np.array([2]))
    assert view.ids.tolist() == [0, 2]
    assert np.isfinite(view.losses).tolist() == [False, False, True, False]
    assert roster.ids.tolist() == [0, 1, 2, 3]
    assert roster.losses.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_searches_are_due_in_the_first_round_and_every_interval():
    policy = ISP(setup_for(ring(), isp_interval=3))
    assert [number for number in range(1, 9) if policy.due(Round(number, 8))] == [1, 4, 7]


def test_client_eval_tells_the_global_loss_of_the_next_round_for_nothing():
    setup = setup_for(rounds=2, isp_interval=1, isp_draws=1)
    setup = replace(setup, run=replace(setup.run, client_eval=True))
    rows, proxies, _ = run_isp(setup, loss=1.0, evaluation={"accuracy": 0.5})
    untouched = [
        sum(not parameters_to_ndarrays(ins.parameters)[0].any() for kind, ins in proxy.asked if kind == "evaluate")
        for proxy in proxies
    ]
    # The initial model is tested once by each, for the search; the second round's w by `client-eval` only.
    assert untouched == [1] * CLIENTS
    assert rows[1]["probe_bytes"] == rows[0]["probe_bytes"] - CLIENTS * (MODEL_BYTES + 8)
    assert rows[1]["search"]["global_loss"] == 1.0
