"""Full participation."""

import pytest

from fedsel_app.config import Settings
from strategies.methods.full import FullParticipation
from strategies.roster import Needs
from strategies.testing.fakes import make_context
from tests.support.contexts import make_roster
from tests.support.selecting import select


@pytest.mark.parametrize("count", [1, 3, 9])
def test_takes_every_available_client_whatever_the_cohort(count):
    method = FullParticipation(make_context(Settings(), clients=6))
    selection = select(method, make_roster(6, available=[1, 3, 4]), 2, count)
    assert selection.clients.tolist() == [1, 3, 4]
    assert selection.weights is None
    assert FullParticipation.needs(Settings()) == Needs()
