"""Verification of claims: five seeds of the deciding stage run anew, beside the committed rows of the same seeds."""

from dataclasses import replace

import pytest

from fedsel_app.config import ConfigError
from laboratory.__main__ import main
from laboratory.claims.claim import Claim
from laboratory.claims.measured import Measured, run_of, write_measured
from laboratory.claims.verify import verified_stage
from laboratory.tests.claims.fakes import shipped

NAME = "terraform-random-weighted"


def few(seeds=5):
    [claim] = Claim.load([NAME])
    return verified_stage(claim, shipped(), seeds)


def test_the_seeds_are_the_first_of_the_stage_that_decided():
    [claim] = Claim.load([NAME])
    decided = claim.stages["second_stage"] if "second_stage" in claim.stages else claim.stages["first_stage"]
    assert few().seeds == list(decided.range)[:5]
    assert few(None).seeds == list(decided.range)
    [absent] = Claim.load(["fedcvr-mnist-random"])
    with pytest.raises(ConfigError, match=r"Run fedcvr-mnist-random with `.* claims run`: it has no verdict"):
        verified_stage(absent, shipped(), 5)


@pytest.mark.parametrize(("better", "code", "last"), [(0.0, 0, "Every verdict came again."), (0.5, 1, f"{NAME}.")])
def test_the_command_compares_the_verdicts_of_the_same_seeds(tmp_path, capsys, monkeypatch, better, code, last):
    """The new rows are the committed ones, or have a better other side; so no run is missing."""
    monkeypatch.setenv("COLUMNS", "400")
    claim, rows = few(), {}
    for side in claim.sides:
        for seed in claim.seeds:
            row = dict(shipped().rows[run_of(claim, side, seed)])
            gain = better if side == claim.other else 0.0
            row["values"] = {key: value and value + gain for key, value in row["values"].items()}
            rows[row["run"]] = row
    (tmp_path / "again").mkdir()
    write_measured(tmp_path / "again" / "measured.jsonl", rows)
    assert main(["claims", "verify", NAME, "--out", str(tmp_path / "again")]) == code
    said = capsys.readouterr().out
    assert "Nothing is missing" in said
    assert " 1 to 5 " in said
    assert said.rstrip().endswith(last)
    assert ("10 of 10" in said) == (not better)
    assert Measured(rows).values(claim, replace(claim.claimed), claim.seeds[0])
