"""Choices: solvers, compressors, aggregations and server optimizers are their traits and their algorithms."""

from clients import error_feedback
from fedsel_app.config.compression import COMPRESSORS
from fedsel_app.config.server import AGGREGATIONS, SERVER_OPTIMIZERS
from fedsel_app.config.training import SOLVERS
from fedsel_app.solvers import EQUATIONS
from strategies.aggregation.robust import CENTRES, CHOSEN
from strategies.aggregation.server_optimizer import SECOND_MOMENTS


def test_each_choice_has_an_algorithm():
    assert [*EQUATIONS] == [*SOLVERS]
    assert [*error_feedback.COMPRESSORS] == [*COMPRESSORS]
    assert {"mean", *CENTRES, *CHOSEN} == {*AGGREGATIONS}
    assert [*SECOND_MOMENTS] == [name for name, traits in SERVER_OPTIMIZERS.items() if traits.adaptive]
