"""First contact: the sentences that a new user's first commands print, right or wrong."""

import signal
import subprocess
import sys

import pytest

from simulation.workbench.cli import carry_out, main
from simulation.workbench.command_line.parser import Parser

SMALL = ["--clients", "4", "--cohort", "2", "--set", "local-steps=1", "--engine", "inline"]
MODULE = '''
import numpy as np

from strategies.base import SelectionStrategy
from strategies.roster import Selection


def load(config):
    """Labels 1 to 3, as a tuple."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 6)).astype("float32"), rng.integers(1, 4, 90)
    return x[:60], y[:60], x[60:], y[60:]


def broken(config):
    return {}["absent"]


class First(SelectionStrategy):
    name, paper, explores = "first", "nowhere", False

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[rng.permutation(roster.ids.size) < count])


class Greedy(First):
    explores = True

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[:count])
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Name of a module in the working directory, which is not on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != ""])
    name = f"mine_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
    yield name
    sys.modules.pop(name, None)


def called(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, *arguments):
    """Sentence with which a command refuses its settings: one line, and exit code 2."""
    code, _, err = called(capsys, *arguments)
    assert (code, err.count("\n")) == (2, 1), err
    return err


def test_a_users_function_is_found_in_the_working_directory_and_may_return_a_tuple(capsys, mine, tmp_path):
    code, out, err = called(
        capsys, "run", "--rounds", 1, *SMALL, "--set", f"data={mine}:load", "--out", tmp_path / "run"
    )
    assert code == 0, err
    assert "Data: 60 training and 30 test examples of shape (6,), 4 classes (no example has 0)\n" in out
    assert "round 1 of 1: accuracy " in out
    assert " simulated s, " in out


def test_an_exception_in_a_users_function_names_the_function_and_the_line(capsys, mine, tmp_path):
    sentence = refused(capsys, "run", "--set", f"data={mine}:broken")
    line = 1 + MODULE.splitlines().index('    return {}["absent"]')
    assert f"The function '{mine}:broken' ('data') raised KeyError: 'absent' " in sentence
    assert f"({tmp_path / mine}.py, line {line})." in sentence


def test_a_check_says_what_passed_and_what_is_not_promised(capsys, mine):
    code, out, _ = called(capsys, "check", f"{mine}:First")
    assert code == 0
    assert "passed  same-seed: The same seed gives the same run." in out
    assert "passed  coverage: The class does not promise this: explores = False." in out
    assert out.endswith(f"{mine}:First passes all checks.\n")


def test_a_check_that_fails_says_why_and_goes_on(capsys, mine):
    code, out, _ = called(capsys, "check", f"{mine}:Greedy")
    assert code == 1
    assert "FAILED  coverage: The method first fails the check 'coverage': " in out
    assert "passed  state: " in out
    assert out.endswith(f"{mine}:Greedy: 2 checks failed.\n")


def test_a_preset_of_a_table_brings_its_strategies(capsys, mine, tmp_path):
    (tmp_path / "table.toml").write_text('strategies = ["oort", "random"]\n', encoding="utf-8")
    arguments = ["compare", "--seeds", 1, "--out", tmp_path / "compared", "--dry-run"]
    _, out, _ = called(capsys, *arguments, "--preset", tmp_path / "table.toml")
    assert all(f"{name}-s1: " in out for name in ("oort", "random"))
    assert "needs --strategies NAME,... or a --preset that has some" in refused(capsys, *arguments)


@pytest.fixture
def with_hangups():
    """SIGHUP as in a shell: under nohup it is ignored, also by fedsel."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("command", "said"),
    [("compare", "interrupted; repeat the command to continue from here"), ("settings", "interrupted")],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interruption_says_how_to_continue(command, said, number, code, capsys, with_hangups):
    def interrupted(arguments):
        signal.raise_signal(number)

    commands = Parser(prog="fedsel")
    commands.add_subparsers(dest="command").add_parser(command).set_defaults(call=interrupted)
    assert carry_out(commands, [command]) == code
    assert capsys.readouterr().err == f"fedsel: {said}\n"


@pytest.mark.parametrize("words", ["presets", "methods"])
def test_a_command_whose_output_is_cut_ends_quietly(words):
    command = f"set -o pipefail; {sys.executable} -m simulation.workbench.cli {words} | true"
    ended = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"")
