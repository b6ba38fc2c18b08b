"""Last updates: the newest of each client, through a file and back."""

import io

import numpy as np
import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wire.codec import Update
from strategies.checkpoint import scatter
from strategies.last_updates import LastUpdates
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, outcome

SPARSE = Update(4, np.array([1, 3], np.uint32), np.array([5.0, 6.0], np.float32))


def filled():
    kept = LastUpdates()
    kept.add(outcome(RoundInfo(1, 10), [0, 2], [dense([1.0, 2.0, 3.0, 4.0]), SPARSE]))
    kept.add(outcome(RoundInfo(2, 10), [0], [dense([9.0, 9.0, 9.0, 9.0])], failed=[2]))
    return kept


def test_the_newest_of_each_client_is_kept_and_a_failure_changes_nothing():
    kept = filled()
    assert sorted(kept) == [0, 2]
    assert kept[0].values.tolist() == [9.0] * 4
    assert kept[2] is SPARSE


def test_they_go_through_a_file():
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **filled().state())
    file.seek(0)
    again = LastUpdates()
    again.load_state(dict(np.load(file, allow_pickle=False)))
    for client, update in filled().items():
        assert again[client] == update
    again.load_state(LastUpdates().state())
    assert not again


@pytest.mark.parametrize(
    "state",
    [
        filled().state() | {"payloads": np.zeros(70, np.uint8)},
        filled().state() | {"clients": np.array([0])},
        {"clients": np.array([0]), "size-0": np.array(2), "values-0": np.ones(2, np.float32)},
    ],
    ids=["payloads", "clients", "an earlier form"],
)
def test_a_state_that_is_not_of_such_updates_is_refused(state):
    state = {f"last-updates/{name}": array for name, array in state.items()}
    with pytest.raises(ConfigError, match=r"state of its last-updates cannot be loaded.*Start the run again"):
        scatter(state, {"last-updates": LastUpdates()})
