"""Words for what happens: costs are said beforehand, and a stranger's texts command no terminal."""

import json
import os
import re

import pytest
import tomli_w

from fedsel_app.records.reading import legible
from simulation.operations.deployment.deployed_run import show_line
from simulation.workbench.cli import main
from tests.support.report_runs import write_plan, write_run

OBEYED = "\x1b]0;owned\x07\x1b[2J\x9b2J\r\x08\u202e\u2066\ud800\x7f"
"""Sets a terminal's title, clears it, overwrites a line, turns text around; the last but one is in no file."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
pytestmark = pytest.mark.usefixtures("without_figures")
HOSTILE = f"m{OBEYED}[/red][bold]y"


def hostile(folder):
    """A finished run with hostile texts wherever its records have texts."""
    write_run(folder, "random", 1, [0.5, 0.6], row={"failures": [{"client": 0, "reason": HOSTILE}]})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"strategy": HOSTILE, "model": HOSTILE, HOSTILE: HOSTILE}))
    known = {"strategy": HOSTILE, "seed": 1, "target_accuracy": 0.8, "failure_count": 0, HOSTILE: HOSTILE}
    (folder / "summary.json").write_text(json.dumps(known))


@pytest.mark.parametrize("command", ["report", "watch"])
def test_a_strangers_run_folder_sends_nothing_to_the_terminal(tmp_path, capsys, command):
    hostile(tmp_path / "run")
    assert main([command, str(tmp_path / "run")]) == 0
    assert_inert(capsys, tmp_path)


def test_a_strangers_settings_begin_no_line_of_the_terminal(tmp_path, capsys):
    """U11: a line break let a setting pass for words of fedsel's own. A run, a comparison, and runs side by side."""
    said = "m\r\nfedsel: all is well"
    methods = ("random", "oort")
    paths = write_plan(tmp_path, [(method, 1, {}) for method in methods], baseline=said)
    for path, method in zip(paths, methods, strict=True):
        write_run(path, method, 1, [0.5, 0.6], row={"failures": [{"client": 0, "reason": said}]})
        config = json.loads((path / "config.json").read_text())
        texts = {"strategy": said, "model": said, said: f"{method}\nfedsel: all is well"}
        (path / "config.json").write_text(json.dumps(config | texts))
    plan = json.loads((tmp_path / "comparison.json").read_text())
    plan["runs"] = [run | {"name": run["name"] + said, "cell": {said: run["name"] + said}} for run in plan["runs"]]
    (tmp_path / "comparison.json").write_text(json.dumps(plan))
    (tmp_path / "failures.jsonl").write_text(json.dumps({"name": said, "message": said}) + "\n")
    (tmp_path / "both").mkdir()
    for words in ([paths[0]], [tmp_path], [*paths, "--out", tmp_path / "both"]):
        assert main(["report", *map(str, words)]) == 0
        printed = capsys.readouterr().out
        assert "fedsel: all is well" in printed
        assert not any(line.lstrip(" │┃").startswith("fedsel: all") for line in printed.splitlines())


@pytest.mark.parametrize("command", ["report", "watch"])
def test_a_strangers_comparison_sends_nothing_to_the_terminal(tmp_path, capsys, command):
    [path] = write_plan(tmp_path, [("random", 1, {})])
    hostile(path)
    plan = json.loads((tmp_path / "comparison.json").read_text())
    plan["runs"][0]["name"] = plan["baseline"] = HOSTILE
    plan |= {"settings": {"model": HOSTILE, HOSTILE: HOSTILE}}
    (tmp_path / "comparison.json").write_text(json.dumps(plan))
    code = main([command, str(tmp_path)])
    assert code == 0 or command == "report", "a report may refuse this baseline"
    assert_inert(capsys, tmp_path)


def assert_inert(capsys, folder):
    """Nothing that was printed or written has a control character."""
    captured = capsys.readouterr()
    assert not CONTROL.search(captured.out + captured.err)
    assert "Traceback" not in captured.err
    for path in folder.rglob("report*.*"):
        if path.suffix in (".html", ".md", ".csv", ".tex"):
            assert not CONTROL.search(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("name", ["config.json", "rounds.jsonl"])
def test_the_sentence_about_a_damaged_file_is_inert_too(tmp_path, capsys, name):
    hostile(tmp_path / "run")
    damaged = {"rounds": HOSTILE, "round": HOSTILE, "strategy": [HOSTILE], "accuracy": HOSTILE}
    (tmp_path / "run" / name).write_text(json.dumps(damaged) + "\n")
    assert main(["watch" if name == "config.json" else "report", str(tmp_path / "run")]) == 2
    assert_inert(capsys, tmp_path)


def test_a_strangers_preset_sends_nothing_to_the_terminal(tmp_path, capsys):
    preset = tmp_path / "mine.toml"
    preset.write_text(tomli_w.dumps({"description": OBEYED[:-2], "departures": [{"why": HOSTILE[:13], "rounds": 3}]}))
    for words in (["presets", str(preset)], ["run", "--preset", str(preset), "--set", f"data={OBEYED[:-2]}"]):
        main(words)
        assert_inert(capsys, tmp_path)


def test_texts_keep_their_lines_and_their_letters():
    text = "äöü 漢字 🙂 [x] \\x1b\n\tnext"
    assert legible({text: [text, 3, None, 0.5, True]}) == {text: [text, 3, None, 0.5, True]}
    assert legible("a\x1b[2Jb\x9bc\ud800") == "a\\x1b[2Jb\\x9bc\\ud800"


def test_a_servers_log_is_text_alone(capsys):
    show_line(f"\x1b[92mround 1\x1b[0m of 2{OBEYED}\x1b[31;1mend\x1b[0m")
    said = capsys.readouterr().out
    assert not CONTROL.search(said)
    assert said.startswith("round 1 of 2\\x1b]0;owned\\x07")


def ef21(tmp_path, *words):
    """Exit code of a run with ef21 on digits; the plan alone is too large for any machine if it is not refused."""
    command = ["run", "--set", "error-feedback-scheme=ef21", "--engine", "inline", "--strategy", "random"]
    return main([*command, "--set", "local-steps=1", "--out", str(tmp_path / "run"), *words])


def test_estimates_that_memory_cannot_hold_are_refused_beforehand(tmp_path, capsys, monkeypatch):
    """650 parameters (64 x 10 + 10) of 4 bytes for each client that the server can have seen."""
    real = os.sysconf
    pages = {"SC_PHYS_PAGES": 2, "SC_PAGE_SIZE": 4 * 650 * 6 // 2}
    monkeypatch.setattr(os, "sysconf", lambda name: pages[name] if name in pages else real(name))
    few = ["--set", "model=logistic", "--clients", "20"]
    assert ef21(tmp_path, *few, "--cohort", "2", "--rounds", "4") == 2
    said = capsys.readouterr().err
    assert "the server keeps a dense estimate of each client's update" in said
    assert "8 clients and 650 parameters" in said
    assert not (tmp_path / "run").exists()
    assert ef21(tmp_path, *few, "--cohort", "2", "--rounds", "40") == 2
    assert "20 clients and 650 parameters" in capsys.readouterr().err
    assert ef21(tmp_path, *few, "--cohort", "2", "--rounds", "3") == 0, "it sees 6 clients at most"
