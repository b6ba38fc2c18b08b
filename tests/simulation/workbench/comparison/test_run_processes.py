"""Processes of a comparison's runs, without starting any: limits of rounds, arguments, and reasons of failures."""

import tomllib
from types import SimpleNamespace

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.workbench.comparison.plan import plan
from simulation.workbench.comparison.run_processes import RoundWatch, failure_reason, prepare


def watched(folder, **settings):
    return RoundWatch(SimpleNamespace(folder=folder, config=resolve(settings)), now_s=0.0)


@pytest.mark.parametrize(
    ("settings", "limits_s"),
    [
        ({"reply-timeout-s": 600}, [1200.0, 240.0, 1000.0]),
        ({"reply-timeout-s": 600, "participation": "isp", "holdout-fraction": 0.2}, [1200.0, 1200.0, 1200.0]),
        ({"reply-timeout-s": 0}, [float("inf")] * 3),
    ],
)
def test_a_run_is_overdue_after_twenty_of_its_slowest_rounds(tmp_path, settings, limits_s):
    """Rounds after 1 s, and then after 50 s; a search makes rounds differ, so that it has the first limit."""
    watch, now_s = watched(tmp_path, **settings), 0.0
    for limit_s, next_s in zip(limits_s, (1.0, 50.0, 0.0), strict=True):
        if limit_s < float("inf"):
            assert watch.overdue_s(now_s + limit_s) == 0.0
            assert watch.overdue_s(now_s + limit_s + 0.1) == limit_s
        else:
            assert watch.overdue_s(1e9) == 0.0
        now_s += next_s
        with (tmp_path / "rounds.jsonl").open("a") as file:
            file.write("{}\n")
        assert watch.overdue_s(now_s) == 0.0


def planned(folder, **settings):
    [run] = plan(folder, ["random"], [1], {"clients": 6, "cohort": 2, "rounds": 2, **settings}, {}).runs
    run.folder.parent.mkdir(parents=True)
    return run


@pytest.mark.parametrize(
    ("inline", "engine", "workers"), [(True, ["--engine", "inline", "--set", "workers=0"], 5), (False, [], 3)]
)
def test_a_new_run_starts_from_its_settings(tmp_path, inline, engine, workers):
    run = planned(tmp_path, workers=5)
    command = prepare(run, workers=3, inline=inline)
    preset = tmp_path / "runs" / "random-s1.toml"
    assert command == ["run", "--preset", str(preset), "--out", str(run.folder), *engine]
    assert tomllib.loads(preset.read_text()) == run.config.values() | {"workers": workers}
    run.folder.mkdir()
    (run.folder / "config.json").write_text("{}")
    assert prepare(run, workers=3, inline=inline) == ["run", "--resume", str(run.folder), *engine]


@pytest.mark.parametrize(
    ("code", "log", "reason"),
    [
        (1, "round 1\nfedsel: The round failed.\n\n", "The round failed. (exit code 1; see {log})"),
        (128, "  one  \n", "one (exit code 128; see {log})"),
        (137, "", "nothing in its log (ended by SIGKILL; see {log})"),
    ],
)
def test_the_reason_of_a_failure_is_the_last_line_and_how_it_ended(tmp_path, code, log, reason):
    path = tmp_path / "run.log"
    path.write_text(log)
    assert failure_reason(code, path) == reason.format(log=path)
