"""Words of other frameworks for settings, settings that nothing reads, the version, and an interruption."""

import signal

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.config.words import ALIASES, MEANT, SHARES, did_you_mean, nearest_setting
from fedsel_app.wiring.configuration import known_defaults, resolve
from simulation.workbench.cli import carry_out
from simulation.workbench.command_line.parser import Parser
from simulation.workbench.comparison.plan import plan


def test_every_other_word_means_a_setting_and_is_no_setting_itself():
    known = known_defaults()
    assert ALIASES.keys() <= known.keys()
    assert not {*MEANT, *SHARES} & known.keys()
    assert sum(len(words.split()) for words in ALIASES.values()) == len(MEANT)


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("Top_K", ["rand-k", "top-k"], "top-k"),
        ("fedavg", ["median", "mean"], "mean"),
        ("momentun", ["rounds", "momentum"], "momentum"),
        ("ham", ["flexcom", "graham-rule"], "graham-rule"),
        ("ra", ["graham-rule", "xx"], None),
        ("a", ["a-b", "ab"], None),
        ("--", ["..", "rounds"], None),
        ("zzz", ["mean"], None),
    ],
)
def test_the_nearest_word_is_the_same_letters_another_name_a_misspelling_or_a_part(word, known, meant):
    assert did_you_mean(word, known) == ("" if meant is None else f" Did you mean '{meant}'?")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("--cohort_size", "Did you mean 'cohort'?"),
        ("fraction-fit", "Did you mean 'cohort'? It is the number of clients in a round, not their share."),
        ("Rounds", "Did you mean 'rounds'?"),
        ("zzzzz", ""),
    ],
)
def test_the_nearest_setting(key, said):
    assert nearest_setting(key, known_defaults()) == said


def test_a_grid_of_partitions_may_set_what_only_some_of_them_read(tmp_path):
    settings = {"alpha": 0.1, "rounds": 1}
    assert plan(tmp_path, ["random"], [1], settings, {"partition": ["iid", "dirichlet"]}).runs
    with pytest.raises(ConfigError, match="With partition=iid, 'alpha' has no effect"):
        plan(tmp_path, ["random"], [1], settings | {"partition": "iid"}, {})
    solvers = {"solver": ["sgd", "fedprox"]}
    assert plan(tmp_path, ["random"], [1], {"mu": 0.1, "rounds": 1}, solvers).runs
    assert resolve({"partition": "iid", "preset": "isp-table-2"}).partition.partition == "iid"


@pytest.mark.parametrize(
    ("command", "said"),
    [("compare", "interrupted; repeat the command to continue from here"), ("settings", "interrupted")],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interruption_says_how_to_continue(command, said, number, code, capsys):
    def interrupted(arguments):
        signal.raise_signal(number)

    commands = Parser(prog="fedsel")
    commands.add_subparsers(dest="command").add_parser(command).set_defaults(call=interrupted)
    assert carry_out(commands, [command]) == code
    assert capsys.readouterr().err == f"fedsel: {said}\n"
