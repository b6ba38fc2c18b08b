"""An interrupted run that is taken up again ends as the uninterrupted one does, bit for bit."""

import json

import numpy as np
import pytest

from fedsel_app.records.run_folder import read_checkpoint
from fedsel_app.wiring.configuration import resolve
from tests.support.client_messages import NORMED
from tests.support.in_process import run_config, run_until
from tests.support.rounds import rounds

BASE = {
    "clients": 8,
    "cohort": 3,
    "rounds": 6,
    "local-steps": 2,
    "batch-size": 16,
    "probe-batches": 1,
    "curvature-layers": 0,
    "checkpoint-every": 2,
}
RUNS = {  # test_same_bits.py has the other methods
    "hetero-select": {"strategy": "hetero-select", "hetero-select.average-decay": 0.9, "curvature-layers": 3},
    "fedcvr-bolt": {"strategy": "fedcvr-bolt", "fedcvr-bolt.warmup-rounds": 2},
    "isp of the authors' code": {
        "strategy": "random",
        "model": NORMED,
        "participation": "isp",
        "isp-interval": 2,
        "isp-draws": 2,
        "isp-warmup-rounds": 1,
        "isp-warmup-epochs": 1,
        "isp-smoothing-rule": "code",
        "isp-form": "code",
        "isp-loss": "surrogate",
        "surrogate-examples": 60,
        "calibration-form": "training",
    },
    "scaffold": {"strategy": "random", "solver": "scaffold", "compressor": "none"},
    "common-k": {"strategy": "random", "compressor": "common-k", "ring-bits": 8, "solver": "scaffold"},
    "ef21": {"strategy": "random", "error-feedback-scheme": "ef21", "server-optimizer": "fedyogi", "server-lr": 0.01},
    "spectral norm": {"strategy": "random", "model": "tests.cases.models:spectral"},
    "cumulative statistics": {
        "strategy": "random",
        "model": "tests.cases.models:cumulative",
        "calibration-form": "sequential",
        "max-update-norm": 0.0,
    },
}


def end(folder):
    """Results of a run without wall times: records of rounds and clients, models and summary."""
    models = []
    for name in ("model.npz", "best-model.npz"):
        with np.load(folder / name, allow_pickle=False) as model:
            models.append({key: model[key].tobytes() for key in model})
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    del summary["wall_s"], summary["ended"]
    return rounds(folder), (folder / "clients.jsonl").read_text(encoding="utf-8"), models, summary


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_killed_goes_on_as_if_nothing_had_happened(tmp_path, name):
    """Killed after a checkpoint; the first of the runs also before there is one, in its round, and once more."""
    config, again = resolve(BASE | RUNS[name]), resolve(BASE | RUNS[name] | {"resume": True})
    run_config(tmp_path / "whole", config)
    folder, (first, *others) = tmp_path / "killed", (1, 2, 3, 3) if name == "hetero-select" else (3,)
    run_until(folder, config, first)
    for number in others:
        run_until(folder, again, number)
    assert int(read_checkpoint(folder)["round"]) == 2
    run_config(folder, again)
    assert end(folder) == end(tmp_path / "whole")
    assert not (folder / "checkpoint.npz").exists()


def test_every_number_of_rounds_between_checkpoints_gives_the_same(tmp_path):
    """Also after a kill in the middle of a line."""
    ends = []
    for every in (0, 4):
        folder = tmp_path / str(every)
        run_config(folder, resolve(BASE | {"checkpoint-every": every}))
        ends.append(end(folder))
    run_until(tmp_path / "killed", resolve(BASE), 4)
    with (tmp_path / "killed" / "rounds.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"round": 5, "selected": [1, ')
    run_config(tmp_path / "killed", resolve(BASE | {"resume": True}))
    assert ends[0] == ends[1] == end(tmp_path / "killed")


@pytest.mark.parametrize("validated", [False, True])
def test_the_best_model_is_kept_beside_the_last(tmp_path, validated):
    """It is the one with the best score or, if there is a validation set, with the smallest loss on it."""
    settings = {"rounds": 6, "lr": 2.0, "validation-fraction": 0.2 * validated}
    strategy, rows = run_config(tmp_path, resolve(BASE | settings))
    best = min(rows, key=lambda row: row["validation_loss"] if validated else -row["accuracy"])
    with np.load(tmp_path / "best-model.npz", allow_pickle=False) as model:
        assert strategy.context.evaluate(model["parameters"], model["buffers"]).score == best["accuracy"]


def test_a_run_ends_when_its_validation_loss_has_stalled(tmp_path):
    """So does one that was killed and continued. The test set has no part in it."""
    settings = BASE | {"rounds": 12, "lr": 2.0, "validation-fraction": 0.2}
    _, whole = run_config(tmp_path / "whole", resolve(settings))
    losses = [row["validation_loss"] for row in whole]
    least = [min(losses[:number]) for number in range(1, 13)]
    first = next(number for number in range(3, 13) if least[number - 1] == least[number - 3])
    assert first < 12, losses
    stopping = settings | {"patience": 2}
    _, rows = run_config(tmp_path / "stopped", resolve(stopping))
    assert [row["validation_loss"] for row in rows] == losses[:first]
    run_until(tmp_path / "killed", resolve(stopping), first - 1)
    run_config(tmp_path / "killed", resolve(stopping | {"resume": True}))
    assert end(tmp_path / "killed") == end(tmp_path / "stopped")
    summary = json.loads((tmp_path / "stopped" / "summary.json").read_text(encoding="utf-8"))
    assert summary["best_validation_round"] == first - 2
    assert summary["best_validation_accuracy"] == whole[first - 3]["accuracy"]
    validated = [row["validation_accuracy"] for row in rows]
    assert summary["stable_validation_accuracy"] == pytest.approx(np.mean(validated[-10:]))
