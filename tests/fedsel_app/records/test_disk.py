"""Full disk, or a folder that is removed: the error names the file, and everything written before stays complete."""

import shutil

import numpy as np
import pytest

from clients.state import ClientHistory, StateStore
from fedsel_app.records.files import MachineFault, RecordError
from fedsel_app.records.run_folder import RunFolder, read_rounds
from fedsel_app.records.schema import RoundRecord
from tests.support.full_disk import no_file_above

CONFIG = {"target": 0.9, "strategy": "random", "seed": 1}
LONG = 3000


def record(number, text=""):
    return RoundRecord(number, failures=[{"client": 0, "reason": text}])


@pytest.fixture
def folder(tmp_path):
    """Run folder with one round."""
    run = RunFolder(tmp_path / "run", CONFIG)
    run.round(record(1))
    yield run
    run.close()


def test_a_folder_that_was_removed_is_named(folder):
    shutil.rmtree(folder.path)
    with pytest.raises(RecordError, match=r"rounds\.jsonl cannot be written: it was removed"):
        folder.round(record(2))
    with pytest.raises(RecordError, match=r"checkpoint\.npz"):
        folder.checkpoint({"round": np.array(1)})


def test_an_incomplete_line_is_no_round_and_is_removed_when_the_run_is_resumed(folder):
    folder.checkpoint({"round": np.array(1)})
    folder.close()
    with (folder.path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "fail')
    assert [read["round"] for read in read_rounds(folder.path)] == [1]
    again = RunFolder(folder.path, CONFIG, resume=True)
    again.round(record(2))
    again.close()
    assert [read["round"] for read in read_rounds(folder.path)] == [1, 2]


def test_a_clients_state_that_does_not_fit_leaves_the_one_before(tmp_path):
    store = StateStore(tmp_path / "state")
    store.save(3, 1, {"residual": np.ones(4)}, ClientHistory())
    with no_file_above(2000), pytest.raises(MachineFault, match=r"client-3/round-2\.npz.*Free the disk"):
        store.save(3, 2, {"residual": np.ones(LONG)}, ClientHistory(1, 1))
    aggregated, unacknowledged = store.recall(3, ClientHistory(1, 1))
    np.testing.assert_array_equal(aggregated["residual"], np.ones(4))
    assert unacknowledged == {}
    assert len(list((tmp_path / "state" / "client-3").iterdir())) == 1
