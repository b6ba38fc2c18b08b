"""`fedsel compare` with a stub in place of `fedsel run`, and once with the real one."""

import json
import multiprocessing
import os
import re
import signal
from collections import Counter

import pytest
from rich.console import Console

from simulation.workbench.cli import main
from simulation.workbench.comparison import run_processes
from simulation.workbench.comparison.plan import plan
from tests.support.processes import looks_in_proc, mentioning, until
from tests.support.rounds import read_rows
from tests.support.stubbed_runs import compare_arguments, compared, events, out, records, stub, stubbed_runs

__all__ = ["out"]

SETTINGS = {"clients": 6, "cohort": 2, "rounds": 2}
RUNS = ["oort-s1", "random-s1", "oort-s2", "random-s2"]


def test_runs_are_done_once(capsys, out):
    code, said, error = compared(capsys, out, "--jobs", "2")
    assert (code, error) == (0, "")
    assert sorted(events(out)) == sorted(f"{name}: {what}" for name in RUNS for what in ("start after 0", "end"))
    assert "oort-s1: finished after 2 rounds, accuracy 0.2100; " in said
    assert re.search(r"2 rounds, accuracy 0\.\d+; 2 of 4 runs, about \d s left\n", said)
    assert re.search(r"2 rounds, accuracy 0\.\d+; 4 of 4 runs\n", said)
    # Accuracies 0.11 and 0.21, 0.12 and 0.22: means 0.16 and 0.17, standard deviation 0.01 / sqrt(2).
    assert re.search(r"oort +│ +0.1650 │ +0.2150 │ +0 of 2 │", said)
    assert said.rstrip().endswith(f"Next: fedsel report {out}")
    assert {path.name for path in out.iterdir()} == {"comparison.json", "compare.lock", "runs", "starts.log"}
    before = records(out)
    assert compared(capsys, out, "--jobs", "1")[0] == 0
    assert len(events(out)) == 8
    assert records(out) == before
    code, said, _ = compared(capsys, out, "--dry-run")
    assert (code, said.count("(finished)")) == (0, 4)


def test_a_failed_run_is_told_and_loses_nothing(capsys, monkeypatch, out):
    stub(monkeypatch, fail=["random-s1"], checkpoint=True)
    code, said, _ = compared(capsys, out)
    assert code == 1
    log = out / "runs" / "random-s1.log"
    reason = f"The round failed. (exit code 1; see {log})"
    assert f"random-s1 failed: {reason}\n" in said
    failure = {"name": "random-s1", "exit_code": 1, "message": reason}
    assert read_rows(out, "failures.jsonl") == [failure]
    assert {path.parent.name for path in out.glob("runs/*/summary.json")} == set(RUNS) - {"random-s1"}
    stub(monkeypatch)
    assert compared(capsys, out)[0] == 0
    assert not (out / "failures.jsonl").exists()
    assert events(out)[-2:] == ["random-s1: start after 1", "random-s1: end"]
    assert len(events(out)) == 2 * 4 + 1
    assert [row["round"] for row in read_rows(out / "runs" / "random-s1")] == [1, 2]


def test_other_settings_in_the_same_folder_are_refused(capsys, out):
    assert compared(capsys, out)[0] == 0
    before = records(out)
    code, said, error = compared(capsys, out, "--set", "lr=0.2")
    assert (code, said) == (2, "")
    assert "fedsel: The run oort-s1 is in" in error
    assert "'lr' = 0.05, not 0.2" in error
    assert error.count("\n") == 1
    assert records(out) == before
    assert compared(capsys, out, "--set", "workers=2")[0] == 0
    assert len(events(out)) == 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grid", "lr=0.1,-1"], "The 'lr' parameter must be in (0, ∞). Got -1."),
        (["--grid", "data=digits,mnist"], "The data set 'mnist' is absent from "),
        (["--grid", "min-examples=1,1000"], "min-examples"),
        (["--seeds", "one"], "--seeds takes whole numbers"),
        (["--set", "strategy=random"], "use its strategies, seeds and out instead"),
    ],
)
def test_what_one_run_would_refuse_stops_all_before_the_first(capsys, out, monkeypatch, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, printed, error = compared(capsys, out, *arguments)
    assert (code, printed) == (2, "")
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_jobs_run_side_by_side_and_no_more(capsys, monkeypatch, out):
    stub(monkeypatch, sleep_s=0.2)
    assert compared(capsys, out, "--jobs", "2")[0] == 0
    at_once = [0]
    for line in events(out):
        at_once.append(at_once[-1] + (1 if "start" in line else -1))
    assert max(at_once) == 2
    assert all(json.loads(path.read_text())["workers"] == 0 for path in out.glob("runs/*/config.json"))


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Records of an undisturbed comparison, whose runs write checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        out = stubbed_runs(tmp_path_factory.mktemp("calm"), patch)
        stub(patch, checkpoint=True)
        assert main(compare_arguments(out, "--jobs", "2")) == 0
    return records(out)


def in_the_background(out, jobs=2):
    """`compare` in a process of its own, with the stub."""
    comparison = plan(out, ["oort", "random"], [1, 2], SETTINGS, {})
    console = Console(file=(out.parent / "x.log").open("w"))
    process = multiprocessing.get_context("fork").Process(
        target=run_processes.carry_out, args=(comparison, jobs, console)
    )
    process.start()
    return process


@looks_in_proc
def test_killed_and_run_again_ends_as_if_nothing_had_happened(capsys, monkeypatch, calm, out):
    stub(monkeypatch, checkpoint=True, hang=RUNS[2:], grandchild=True)
    process = in_the_background(out)
    begun = [out / "runs" / name / "checkpoint.npz" for name in RUNS[2:]]
    until(lambda: all(path.exists() for path in begun), 30.0)  # two runs ended, the others had their first round
    until(lambda: mentioning(out), 30.0)
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    assert process.exitcode not in (None, 0)
    until(lambda: not mentioning(out), 30.0)

    ended = {line.split(":")[0] for line in events(out) if line.endswith("end")}
    assert ended == set(RUNS[:2])
    stub(monkeypatch, checkpoint=True)
    assert compared(capsys, out, "--jobs", "2")[0] == 0
    starts = Counter(line.split(":")[0] for line in events(out) if "start" in line)
    assert all(starts[name] == 1 for name in ended)
    assert records(out) == calm


@pytest.mark.parametrize("victim", ["run", "server"])
def test_a_run_whose_process_is_killed_is_taken_up_again(capsys, monkeypatch, calm, out, victim):
    """Killed after its first round; with the starter all runs end that are going on."""
    stub(monkeypatch, checkpoint=True, kill="random-s1", victim=victim)
    code, said, error = compared(capsys, out, "--jobs", "2")
    assert (code, error) == (0, "")
    assert "random-s1: ended by SIGKILL, and restarted" in said
    assert records(out) == calm


KILLED_PREPARATION = """
import os, signal
from pathlib import Path

def prepare(data, seed):
    begun = Path(os.environ["BEGUN"])
    begun.write_text(begun.read_text() + "x" if begun.exists() else "x")
    if begun.stat().st_size <= int(os.environ["KILLS"]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("kills", "code"), [(1, 0), (2, 1)])
def test_a_starter_killed_while_it_loads_the_data_is_started_again(capsys, monkeypatch, tmp_path, out, kills, code):
    """Killed once, nothing is lost but time; killed every time, the comparison ends and can be started again."""
    (tmp_path / "killed_preparation.py").write_text(KILLED_PREPARATION)
    monkeypatch.setattr(run_processes, "RESTARTS", 1)
    monkeypatch.setattr(run_processes, "PREPARATION", "killed_preparation")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
    monkeypatch.setenv("KILLS", str(kills))
    ended, said, error = compared(capsys, out)
    assert ended == code
    reason = "the process that starts all others was ended by SIGKILL"
    assert said.count(f"oort-s1: {reason}, and restarted") == min(kills, run_processes.RESTARTS)
    if code:
        assert error == (
            f"fedsel: oort-s1 cannot be started: {reason}. What was done is kept: start the comparison again.\n"
        )
        assert compared(capsys, out)[0] == 0
    else:
        assert error == ""
    assert len(list(out.glob("runs/*/summary.json"))) == 4


def test_a_run_that_is_killed_again_and_again_fails_alone(capsys, monkeypatch, out):
    monkeypatch.setattr(run_processes, "RESTARTS", 1)
    stub(monkeypatch, kill="random-s1", always=True)
    code, said, _ = compared(capsys, out, "--jobs", "2")
    assert code == 1
    assert said.count("random-s1: ended by SIGKILL, and restarted") == run_processes.RESTARTS
    assert "(ended by SIGKILL; see " in said
    assert {path.parent.name for path in out.glob("runs/*/summary.json")} == set(RUNS) - {"random-s1"}


def test_two_at_work_on_one_folder_are_one_too_many(capsys, monkeypatch, out):
    stub(monkeypatch, sleep_s=30)
    process = in_the_background(out, jobs=1)
    try:
        until((out / "starts.log").exists, 30.0)
        code, _, error = compared(capsys, out)
        assert (code, "Another `fedsel compare` is running" in error) == (2, True)
    finally:
        process.terminate()
        process.join(30)


def test_the_lines_before_the_runs_have_the_time_left_at_the_pace_of_those_that_are_finished(tmp_path):
    """Two of four runs took 90 and 150 s."""
    made = plan(tmp_path, ["random", "oort"], [1, 2], SETTINGS | {"rounds": 4}, {"lr": [0.1]})
    for run, seconds in zip(made.runs[::2], (90.0, 150.0), strict=True):
        run.folder.mkdir(parents=True)
        summary = {"strategy": "random", "seed": run.seed, "wall_s": seconds, "target_accuracy": 0.8}
        (run.folder / "summary.json").write_text(json.dumps(summary | {"failure_count": 0}))
    assert made.lines(9) == [
        "Everything equal but the method, which also weighs the updates.",
        "random-lr=0.1-s1: inline, round 0 of 4 (finished)",
        "oort-lr=0.1-s1: inline, round 0 of 4",
        "random-lr=0.1-s2: inline, round 0 of 4 (finished)",
        "oort-lr=0.1-s2: inline, round 0 of 4",
        "Side by side: 9; about 2 min left",
    ]
    assert made.lines(1)[-1] == "Side by side: 1; about 4 min left"
