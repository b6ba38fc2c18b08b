"""Train instructions: what each selected client is told."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import ConfigError, Settings
from fedsel_app.messages.scalars import Report
from strategies.roster import RoundInfo, Selection
from strategies.round.instructions import InstructionBuilder
from strategies.testing.fakes import make_context
from tests.support.contexts import make_roster

CLIENTS = np.array([1, 4])


def told(selection=None, number=3, roster=None, change=lambda builder: None, *, reports=(), estimated=(), **settings):
    context = make_context(Settings(), **{"compressor": "top-k", "lr": 0.5, "lr_decay": 0.0} | settings)
    builder = InstructionBuilder(context, roster or make_roster(), frozenset(reports), estimated)
    change(builder)
    instructions, fraction = builder.instruct(selection or Selection(CLIENTS), RoundInfo(number, 10))
    assert list(instructions) == CLIENTS.tolist()
    return builder, list(instructions.values()), fraction


def test_a_client_is_told_of_its_own_history_and_key():
    roster = make_roster()
    roster.last_selected[CLIENTS], roster.last_returned[CLIENTS], roster.taken[CLIENTS] = (2, 1), (1, 0), (0.5, 1.0)

    def change(builder):
        builder.last_checkpoint, builder.earlier = 2, {4: 1, 1: 9}

    reports = (Report.RMS_LOSS, Report.EFFECTIVE_STEPS)
    builder, found, _ = told(roster=roster, change=change, reports=reports, estimated={4})
    assert [(each.last_instructed, each.last_aggregated, each.taken) for each in found] == [(2, 1, 0.5), (1, 0, 1.0)]
    assert [each.last_checkpoint for each in found] == [2, 1]
    assert [each.estimated for each in found] == [False, True]
    keys = [hashlib.sha256(f"{builder.key} {client}".encode()).hexdigest()[:32] for client in (1, 4)]
    assert [each.run_key for each in found] == keys
    assert {each.reports for each in found} == {tuple(sorted(reports))}
    assert {each.server_round for each in found} == {3}


def test_own_work_of_the_method_replaces_the_policys_and_is_refused_with_the_users_own_clients():
    context, info = make_context(Settings()), RoundInfo(1, 10)
    for given, expected in (
        ({}, [(0, 2), (0, 2)]),
        ({"local_steps": np.array([3, 7])}, [(3, 0), (7, 0)]),
        ({"local_epochs": np.array([1, 4])}, [(0, 1), (0, 4)]),
    ):
        instructions, _ = InstructionBuilder(context, make_roster(), frozenset()).instruct(
            Selection(CLIENTS, **given), info, local_epochs=2
        )
        assert [(each.local_steps, each.local_epochs) for each in instructions.values()] == expected
    of_users = InstructionBuilder(replace(context, losses_optional=True), make_roster(), frozenset())
    with pytest.raises(ConfigError, match="is yours in a Flower app of your own"):
        of_users.instruct(Selection(CLIENTS, local_epochs=np.array([1, 4])), info)


def test_kept_fractions_are_one_without_a_sparse_compressor_or_else_the_methods_or_by_scores():
    own = Selection(CLIENTS, np.array([1.0, 3.0]), kept_fractions=np.array([0.3, 0.7]))
    _, found, fraction = told(own, compressor="qsgd")
    assert (fraction, [each.kept_fraction for each in found]) == (1.0, [1.0, 1.0])
    steady = {"kept_fraction": 0.2, "kept_warmup_rounds": 0}
    assert [each.kept_fraction for each in told(own, **steady)[1]] == [0.3, 0.7]
    scored = Selection(CLIENTS, np.array([1.0, 3.0]))
    low, high = (each.kept_fraction for each in told(scored, **steady)[1])
    assert high > low
    low, high = (each.kept_fraction for each in told(scored, loss_clip=3.0, **steady)[1])
    assert low == high
