"""Full disk, or a folder that is removed: the error names the file, and everything written before stays complete."""

import json
import os
import shutil
from pathlib import Path

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


def test_a_line_that_does_not_fit_leaves_no_part_of_it(folder):
    path = folder.path / "rounds.jsonl"
    before = path.read_bytes()
    with (
        no_file_above(len(before) + 100),
        pytest.raises(RecordError, match=r"rounds\.jsonl cannot be written: File too large.*--resume"),
    ):
        folder.round(record(2, "x" * LONG))
    assert path.read_bytes() == before
    assert [json.loads(line)["round"] for line in before.splitlines()] == [1]


def test_a_folder_that_was_removed_is_named(folder):
    shutil.rmtree(folder.path)
    with pytest.raises(RecordError, match=r"rounds\.jsonl cannot be written: it was removed"):
        folder.round(record(2))
    with pytest.raises(RecordError, match=r"checkpoint\.npz"):
        folder.checkpoint({"round": np.array(1)})


def test_an_error_at_the_end_names_the_file(tmp_path):
    """A network file system that goes away: the sentence about the file gave way to one without a file."""
    run = RunFolder(tmp_path / "run", CONFIG)
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    [opened] = [link for link in links if link.is_symlink() and link.readlink() == run.path / "rounds.jsonl"]
    os.close(int(opened.name))
    with pytest.raises(RecordError, match=r"rounds\.jsonl cannot be written: Bad file descriptor.*--resume"):
        run.close()
    assert run.path / "clients.jsonl" not in {link.resolve() for link in Path("/proc/self/fd").iterdir()}


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
