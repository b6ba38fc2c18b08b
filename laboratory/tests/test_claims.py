"""`claims run` with a stub in place of `fedsel run`: each run once, also after a kill or a budget."""

import pytest
from rich.console import Console

from laboratory.claims.claim import Claim, Rule, Stage
from laboratory.claims.measured import read_measured
from laboratory.claims.runs import FILE, asked_runs, missing_runs, run_claims
from laboratory.claims.study import Side
from tests.support.stubbed_runs import events, out, stub

__all__ = ["out"]


SMALL = {"clients": 6, "cohort": 2, "rounds": 2, "weighting": "uniform"}
RULE = {"margin": 0.01, "power": 0.8}


def claim(name, claimed, other, metric):
    return Claim(
        name=name,
        paper="P",
        source="Table 1",
        sentence="S.",
        published="1",
        scale="protocol",
        settings=SMALL,
        claimed=Side(claimed),
        other=Side(other),
        rule=Rule(metrics=(metric,), **RULE),
        first_stage=Stage(5),
    )


CLAIMS = [claim("a", "oort", "random", "final_accuracy"), claim("b", "power-of-choice", "random", "time_s")]


def carried_out(out, claims=CLAIMS, **changes):
    settings = {"place": {}, "jobs": 2, "budget_s": float("inf")} | changes
    return run_claims(claims, out, settings["place"], settings["jobs"], settings["budget_s"], Console(quiet=True))


def test_runs_are_shared_between_claims_and_done_once(out):
    assert carried_out(out) == {}
    assert len(events(out)) == 2 * 15
    measured = read_measured(out / FILE)
    first, other = CLAIMS
    # The stub's accuracy after round 2 is 0.2 + seed / 100, its rounds take 2.5 s.
    assert measured.values(first, Side("oort"), 3) == {"final_accuracy": pytest.approx(0.23)}
    assert measured.values(other, Side("random"), 3)["time_s"] == 5.0
    before = (out / FILE).read_bytes()
    assert carried_out(out) == {}
    assert len(events(out)) == 2 * 15
    assert (out / FILE).read_bytes() == before


def test_after_a_budget_only_what_is_missing_is_run(out, monkeypatch):
    stub(monkeypatch, sleep_s=0.2, checkpoint=True)
    carried_out(out, budget_s=2.0)
    done = read_measured(out / FILE).rows
    assert 0 < len(done) < 15
    stub(monkeypatch)
    carried_out(out)
    ended = [line.split(":")[0] for line in events(out) if line.endswith(": end")]
    assert sorted(ended) == sorted({*ended})
    assert len(ended) == 15
    assert missing_runs(CLAIMS, read_measured(out / FILE)) == []


def test_a_run_that_fails_is_told_and_the_others_are_measured(out, monkeypatch):
    failing = next(run for run in asked_runs(CLAIMS) if run.config.run.strategy == "power-of-choice")
    name = f"power-of-choice-s1-{failing.identity}"
    stub(monkeypatch, fail=[name])
    assert carried_out(out).keys() == {name}
    assert len(read_measured(out / FILE).rows) == 14
