"""Intermediate rounds of ISP: the clients' training, the losses that the method knows, and failures."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import ParticipationConfig
from strategies.methods.power_of_choice import PowerOfChoice, PowerOfChoiceConfig
from strategies.methods.random_selection import RandomSelection
from strategies.participation import sample_size
from tests.support.contexts import Rows
from tests.support.isp_ring import CLIENTS, MODEL_BYTES, own_direction, ring, run_isp, setup_for
from tests.support.rounds import bits, run_rounds
from tests.support.stubs import StubClient, StubFederation


def kept_states(stub):
    """Keep-state flags of each client's trainings."""
    return [instruction.keep_state for instruction in stub.told("train")]


def test_clients_train_the_intermediate_round_without_keeping_state_and_then_the_round():
    _, stubs, _ = run_isp(setup_for(ring()))
    kept = [kept_states(stub) for stub in stubs]
    assert all(first is False for first, *_ in kept)
    assert [second for _, *rest in kept for second in rest] == [True] * 4


@pytest.mark.parametrize("optimizer", ["momentum", "fedyogi"])
def test_a_discarded_search_leaves_no_trace_in_the_model(optimizer, monkeypatch):
    """A search that changes nothing leaves the run as it is without one, bit for bit."""
    monkeypatch.setattr("strategies.participation.mixed", lambda found, before, momentum, down: before)
    settings = {"server_optimizer": optimizer, "server_lr": 0.1, "isp_interval": 1}
    searched = setup_for(lambda w, _: 1.0, rounds=3, **settings)
    plain = replace(searched, participation=ParticipationConfig(), recorder=Rows())
    rows, _, arrays = run_isp(searched)
    plain_rows, _, plain_arrays = run_isp(plain)
    assert bits(arrays) == bits(plain_arrays)
    assert [row["selected"] for row in rows] == [row["selected"] for row in plain_rows]


def test_a_sample_trains_for_the_search():
    [row], stubs, _ = run_isp(setup_for(ring(), isp_sample=0.6))
    trained = [stub for stub in stubs if not all(kept_states(stub))]
    assert len(trained) == 5
    assert row["cohort"] == 4
    assert row["client_updates"] == 5 + 4


@pytest.mark.parametrize(("share", "trained"), [(1.0, 8), (0.6, 5), (0.5, 4)])
def test_a_sample_trains_in_a_search_that_is_aggregated(share, trained):
    """5 = ceil(0.6 x 8) clients. The ring's loss is below the global model's from 4 clients on."""
    settings = {"isp_form": "code", "isp_interval": 2, "isp_sample": share}
    rows, stubs, _ = run_isp(setup_for(ring(), rounds=4, **settings))
    assert [row["cohort"] for row in rows][:2] == [trained, 4]
    assert [row["client_updates"] for row in rows][:2] == [trained, 4]
    assert rows[0]["search"]["tried"] == [1, 2, 3, 4]
    assert rows[2]["cohort"] == trained
    assert all(all(kept_states(stub)) for stub in stubs)


def test_a_share_of_the_clients_is_not_one_more_by_rounding():
    """0.07 x 100 is 7.000000000000001 in floating point."""
    assert sample_size(0.07, 100) == 7
    assert sample_size(1e-9, 8) == 1


def test_everybody_trains_for_the_search_also_where_the_method_draws_some_twice():
    class Twice(RandomSelection):
        exact_cohort = False

        def select(self, roster, round_info, count, rng):
            return super().select(roster, round_info, (count + 1) // 2, rng)

    [row], _, _ = run_isp(setup_for(ring()), kind=Twice)
    # Half of 7 are 4: 8 of the intermediate round, and 4.
    assert (row["cohort"], row["client_updates"]) == (7, CLIENTS + 4)


def test_clients_that_fail_are_not_drawn_and_a_round_without_any_keeps_the_number():
    def half(client, message):
        if client % 2 and not message.instruction.keep_state:
            return RuntimeError("gone")
        return own_direction(1.9)(client, message)

    for fit, found in ((half, 4), (lambda client, message: RuntimeError("gone"), None)):
        stubs = [StubClient(client, fit) for client in range(CLIENTS)]
        [row], _ = run_rounds(RandomSelection(setup_for(ring(), rounds=2)), StubFederation(stubs), 1)
        assert row["search"].get("found") == found
        assert row["cohort"] == (found or 2)
        assert [failure["client"] for failure in row["search"]["failures"]] == ([1, 3, 5, 7] if found else [*range(8)])


def test_a_method_that_probes_sees_its_own_candidates_losses_only():
    asked = []

    class Watched(PowerOfChoice):
        def select(self, roster, round_info, count, rng):
            asked.append((count, int(np.isfinite(roster.losses).sum())))
            return super().select(roster, round_info, count, rng)

    method = PowerOfChoiceConfig(candidates=4)
    [row], stubs, _ = run_isp(setup_for(ring(), method=method, isp_draws=2), kind=Watched)
    assert row["cohort"] == 4
    # Everybody for the intermediate round: no candidates; then d = 4 of 8 until m = d, where nobody is compared.
    assert asked == [(8, 0), *((m, 4) for m in (1, 1, 2, 2, 3, 3)), (4, 0), (4, 0), (4, 0)]
    assert sum(stub.kinds.count("evaluate") for stub in stubs) == CLIENTS
    assert row["probe_bytes"] == CLIENTS * (MODEL_BYTES + 8)


@pytest.mark.parametrize("method", [PowerOfChoiceConfig(candidates=4), PowerOfChoiceConfig(candidates=6)])
def test_where_the_search_is_aggregated_the_method_knows_every_loss(method):
    [row], _, _ = run_isp(setup_for(ring(), method=method, isp_form="code"), kind=PowerOfChoice)
    assert row["cohort"] == CLIENTS
    assert np.isfinite(row["probe_losses"]).all()
