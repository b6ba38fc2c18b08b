"""`fedsel tune` with a stub in place of `fedsel run`, and once with the real one, killed and taken up again."""

import json
import tomllib

import numpy as np
import pytest

from simulation.workbench.cli import main
from tests.support.scaled_down import arrays
from tests.support.stubbed_runs import out

__all__ = ["out"]

ARGUMENTS = ["--clients", "6", "--cohort", "2", "--rounds", "2", "--seeds", "1", "--tuning-seeds", "101"]


def tuned(capsys, out, *more, over="lr=0.1..1,oort.penalty=1|2", strategies="random,oort"):
    code = main(["tune", "--strategies", strategies, "--over", over, "--out", str(out), *ARGUMENTS, *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def starts(folder) -> list[str]:
    return sorted(line for line in (folder / "starts.log").read_text().splitlines() if "start" in line)


def test_trials_and_the_comparison_are_done_once_and_more_can_be_added(capsys, out, monkeypatch):
    """All trials of the stub are alike, but for one that fails: the defaults, tried first, are the best."""
    monkeypatch.setenv("STUB", json.dumps({"fail": ["oort-trial=2-s101"]}))
    code, said, error = tuned(capsys, out, "--trials", "2", "--jobs", "2")
    assert (code, error) == (0, "")
    assert "random: trial 1 is the best, lr=0.05: 0.5\n" in said
    assert "oort-trial=2-s101: failed, The round failed. (exit code 1;" in said
    found = json.loads((out / "tuning.json").read_text())["best"]["oort"]
    assert (found["trial"], found["settings"]) == (1, {"lr": 0.05, "oort.penalty": 2.0})
    assert list(found["failures"]) == ["2"]
    assert tomllib.loads((out / "tuned.toml").read_text())["methods"]["random"] == {"lr": 0.05}
    names = {path.name for path in (out / "runs").iterdir() if path.is_dir()}
    assert names == {
        f"{name}-settings={cell}-s1" for name in ("random", "oort") for cell in ("default", "tuned-trial=1")
    }
    before = starts(out), starts(out / "trials")
    monkeypatch.setenv("STUB", "{}")
    assert tuned(capsys, out, "--trials", "3")[0] == 0
    assert len(starts(out / "trials")) == len(before[1]) + 3, "two new ones, and that which had failed"
    assert starts(out) == before[0]
    code, _, error = tuned(capsys, out, "--trials", "3", over="lr=0.1..1")
    assert code == 2
    assert error.startswith(f"fedsel: The folder {out} has a tuning with 'over' = ")


def test_the_tuned_file_stands_alone(capsys, out, tmp_path, monkeypatch):
    """It is complete in any folder, although the preset that was tuned is relative and has a base and tables."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    (here / "base.toml").write_text('data = "npz"\n[methods.oort]\noort.penalty = 1.0\nmu = 0.1\n')
    (here / "mine.toml").write_text('base = "base.toml"\nbatch-size = 10\ndata-path = "digits.npz"\n')
    np.savez(here / "digits.npz", **arrays((1, 8, 8), 10))
    monkeypatch.chdir(here)
    assert tuned(capsys, out, "--trials", "1", "--preset", "mine.toml", "--set", "mu=0.2", over="lr=0.1..1")[::2] == (
        0,
        "",
    )
    monkeypatch.chdir(elsewhere)
    again = ["compare", "--preset", str(out / "tuned.toml"), "--seeds", "1", "--out", "again"]
    assert main(again) == 0
    for name in ("random", "oort"):
        expected, found = (
            tomllib.loads((folder / "runs" / f"{run}.toml").read_text()) | {"out": "", "data-path": ""}
            for folder, run in ((out, f"{name}-settings=tuned-trial=1-s1"), (elsewhere / "again", f"{name}-s1"))
        )
        assert found == expected


def test_a_trial_whose_disk_fails_is_done_again(capsys, out, monkeypatch):
    """It counted as failed, so that another trial was the best one; with that, a full disk chose the settings."""
    failing = {"fail": ["oort-trial=2-s101"], "reason": "x/rounds.jsonl cannot be written: No space left on device."}
    monkeypatch.setenv("STUB", json.dumps(failing))
    code, said, error = tuned(capsys, out, "--trials", "2")
    assert (code, "trial 2" in said) == (1, False)
    assert "No trial is to blame: free the disk, then repeat the command." in error
    monkeypatch.setenv("STUB", "{}")
    assert tuned(capsys, out, "--trials", "2")[0] == 0
    assert not json.loads((out / "tuning.json").read_text())["best"]["oort"]["failures"]


@pytest.mark.parametrize(
    ("more", "over", "sentence"),
    [
        (("--seeds", "101,2"), "lr=0.1..1", "--tuning-seeds and --seeds must have no seed in common. Both have 101."),
        (("--set", "lr=0.1"), "lr=0.1..1", "'lr' is in --over and is also set for all methods: remove one of the two."),
        ((), "oort.penalty=1|2", "random has none of the settings of --over, so all its trials would be alike."),
        ((), "lr=-1..1", "random cannot have lr=-"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_a_sentence(capsys, out, more, over, sentence):
    code, _, error = tuned(capsys, out, *more, over=over)
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith(f"fedsel: {sentence}")
    assert not out.exists()


def test_the_plan_is_shown(capsys, out):
    code, said, _ = tuned(capsys, out, "--dry-run", "--trials", "5")
    assert code == 0
    assert "Runs: 10 of trials on the seeds 101, then 4 with default and tuned settings on the seeds 1." in said
