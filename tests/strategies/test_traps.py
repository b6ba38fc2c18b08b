"""Traps seen in public re-implementations of these methods, and the tests that keep each out.

1. Unexplored clients score 0, so that the same cohort trains for ever:
   test_contract.py::test_every_method_keeps_the_contract (check coverage),
   test_power_of_choice.py::test_rpow_d_tries_the_never_selected_first_and_starves_nobody.
2. Candidates are drawn uniformly instead of by size:
   test_power_of_choice.py::test_selection_frequencies_equal_enumeration.
3. The loss is taken after local training instead of before it:
   test_traps.py::test_power_of_choice_goes_by_the_loss_before_training,
   test_trap_rounds.py::test_a_clients_initial_loss_is_that_of_the_model_it_was_sent.
4. The server's test data steer the selection:
   test_traps.py::test_no_method_reads_the_servers_test_results,
   test_traps.py::test_only_the_round_evaluates.
5. Positions in a list of candidates are returned instead of ids:
   test_contract_mutations.py::test_a_mutant_fails_its_check,
   test_power_of_choice.py::test_selection_frequencies_equal_enumeration.
6. Minus infinity stays in a valuation:
   test_contract.py::test_every_method_keeps_the_contract (check state),
   test_active_fl.py::test_exclusion_is_of_the_round_not_for_ever.
7. Draws with replacement where distinct clients are meant, or the reverse:
   test_contract.py::test_every_method_keeps_the_contract (checks selection and cohort-size),
   test_clustered_sampling.py::test_a_client_drawn_in_several_rows_has_the_multiple_weight,
   test_adasample.py::test_draws_are_with_replacement_and_follow_q,
   test_delta.py::test_weights_are_used_as_they_are_and_multiply_with_repeats.
8. Ward linkage takes the distance matrix for features:
   test_traps.py::test_average_linkage_reads_distances.
9. arccos beyond 1, zero norms, an imbalance of 0, weights that sum to 0, more wanted than there are:
   test_similarity.py::test_cosines_beyond_one_by_rounding_are_no_trouble,
   test_similarity.py::test_angles_by_hand,
   test_fed_cbs.py::test_a_perfectly_balanced_set_is_picked,
   test_server_optimizer.py::test_zero_scores_weigh_alike,
   test_values.py::test_a_vector_of_zeros_has_only_its_norm,
   test_contract.py::test_every_method_keeps_the_contract (check cohort-size).
10. Other people's code reseeds or consumes NumPy's global generator:
    test_trap_rounds.py::test_a_run_leaves_the_global_generators_alone; nothing here, tests included, draws from it
    (ruff's rule NPY002).
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from strategies import STRATEGIES
from strategies.methods.power_of_choice import PowerOfChoice, PowerOfChoiceConfig
from strategies.run_context import Evaluation
from strategies.run_round import run_round
from strategies.selection_math.sampling_rows import merge_tree
from strategies.testing.checked_method import MethodUnderTest, copied, demand_same
from strategies.testing.fake_federation import FakeClients
from tests.support.contexts import context_of
from tests.support.rounds import run_rounds
from tests.support.sources import ROOT
from tests.support.stubs import StubClient, round_of, update_of, update_reply

AT_ONCE = {"fedcor": {"warmup": 1, "first_steps": 5, "steps": 2}, "fedcvr-bolt": {"warmup_rounds": 1}}
"""So that these decide by their own rule within a few rounds."""


def test_every_trap_has_tests_that_exist():
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    traps = re.split(r"^\d+\. ", __doc__, flags=re.MULTILINE)[1:]
    assert len(traps) == 10
    for trap in traps:
        named = re.findall(r"(test_\w+\.py)::(test_\w+)", trap)
        assert named
        for file, name in named:
            assert f"def {name}(" in texts[file], f"{file}::{name}"


def test_power_of_choice_goes_by_the_loss_before_training():
    """After training, the losses are in the opposite order."""
    before, after = [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]

    def fit(client, message):
        return update_reply(update_of(client), client, round_of(message), loss=after[client])

    stubs = [StubClient(client, fit, loss=loss) for client, loss in enumerate(before)]
    method = PowerOfChoice(context_of(PowerOfChoiceConfig(candidates=4), clients=4, cohort=2, rounds=3))
    rows, _ = run_rounds(method, stubs, 3)
    assert [row["selected"] for row in rows] == [[2, 3]] * 3
    assert method.roster.fit_losses[[2, 3]].tolist() == [2.0, 1.0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_method_reads_the_servers_test_results(name):
    """Whatever the test set says, selections, models and states stay the same."""
    ends = []
    for said in (Evaluation(0.1, 0.9), Evaluation(1e9, 0.0)):
        federation = MethodUnderTest(STRATEGIES[name], AT_ONCE.get(name, {})).federation()
        method = federation.method
        context = replace(method.context, evaluate=lambda parameters, buffers, said=said: said)
        method.context = method.run.context = context
        clients, selected = FakeClients(federation, range(method.context.run.clients)), []
        for number in range(1, 6):
            record = run_round(method, clients, number)
            selected.append(record.selected)
            assert (record.loss, record.accuracy) == (said.loss, said.score)
        ends.append((selected, {"model": method.run.model.parameters} | copied(method.state())))
    assert ends[0][0] == ends[1][0]
    demand_same(ends[0][1], ends[1][1], "The server's test results must make no difference.")


def test_only_the_round_evaluates():
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "strategies").rglob("*.py")}
    assert [name for name, text in texts.items() if re.search(r"context\s*\.\s*evaluate\b", text)] == ["run.py"]


def test_average_linkage_reads_distances():
    """0 and 1 are nearest to one another, but 2 and 3 stand alike to the others."""
    distances = np.array([[0, 1, 5, 5], [1, 0, 9, 9], [5, 9, 0, 1.1], [5, 9, 1.1, 0]])
    expected = [[0, 1, 1.0, 2], [2, 3, 1.1, 2], [4, 5, 7.0, 4]]
    np.testing.assert_allclose(merge_tree(distances), expected)
