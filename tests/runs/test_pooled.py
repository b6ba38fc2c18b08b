"""One client that answers for many says what each of them would have said."""

import json

import pytest

from clients.client import SelectionClient
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.wiring.configuration import resolve
from tests.support.client_messages import NORMED
from tests.support.in_process import run_config
from tests.support.rounds import without_wall

pytestmark = pytest.mark.usefixtures("task_identity")

BASE = {"clients": 7, "cohort": 3, "rounds": 3, "local-steps": 2, "batch-size": 16, "probe-batches": 2}
RUNS = {
    "probes": {"strategy": "hetero-select"},
    "tests of candidate models": {
        "strategy": "random",
        "participation": "isp",
        "isp-draws": 2,
        "holdout-fraction": 0.3,
    },
}


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    """A run's settings, and its rounds with every client by itself."""
    return RUNS[request.param], rows_of(tmp_path_factory.mktemp("single"), RUNS[request.param], 0)


def rows_of(folder, settings, pool):
    _, rows = run_config(folder, resolve(BASE | settings), pool=pool)
    return [json.dumps(row) for row in without_wall(rows)]


def test_the_rounds_are_the_same(tmp_path, run):
    settings, single = run
    assert rows_of(tmp_path, settings, 3) == single


def break_clients(monkeypatch, kind):
    """Let clients 2 and 5 fail at each instruction of one kind."""
    answer = SelectionClient.answer

    def broken(self, instruction, *model):
        if self._context.client in (2, 5) and isinstance(instruction, kind):
            raise ValueError("out of order")
        return answer(self, instruction, *model)

    monkeypatch.setattr(SelectionClient, "answer", broken)


ALL: dict[str, object] = {"compressor": "none", "cohort": 7}
TRAINED = {
    "sums and means": ALL | {"solver": "feddyn", "server-optimizer": "mean"},
    "sums and running statistics": ALL | {"model": NORMED, "calibration-form": "training"},
    "sums without refused updates": ALL | {"max-update-norm": 1.0},
    "error feedback": {"strategy": "hetero-select"},
    "common entries": {"solver": "scaffold", "compressor": "common-k", "cohort": 7},
    "intermediate rounds": {"participation": "isp", "isp-draws": 2, "holdout-fraction": 0.3},
}


@pytest.mark.parametrize("name", TRAINED)
def test_pooled_training_gives_the_same_rounds(tmp_path, name):
    single = rows_of(tmp_path / "single", TRAINED[name], 0)
    assert rows_of(tmp_path / "pooled", TRAINED[name], 2) == single


def test_a_client_that_fails_to_train_fails_alone(tmp_path, monkeypatch):
    break_clients(monkeypatch, TrainInstruction)
    settings = {"strategy": "random", "cohort": 7}
    pooled = rows_of(tmp_path / "pooled", settings, 2)
    assert pooled == rows_of(tmp_path / "single", settings, 0)
    assert [[failure["client"] for failure in json.loads(row)["failures"]] for row in pooled] == [[2, 5]] * 3
