"""Words that users guess: settings of other frameworks, options in place of --set, long lists of names."""

import pytest

from fedsel_app.cli import main
from fedsel_app.config import ConfigError
from fedsel_app.config.words import ALIASES, MEANT, SHARES
from simulation.comparison.plan import plan
from simulation.experiments.configuration import known_defaults, resolve

DRY = ["run", "--dry-run"]
SENTENCES = {
    "learning_rate": (["--set", "learning_rate=0.1"], "There is no setting 'learning_rate'. Did you mean 'lr'?"),
    "epochs": (["--set", "epochs=1"], "There is no setting 'epochs'. Did you mean 'local-epochs'?"),
    "fraction": (
        ["--set", "fraction-fit=0.1"],
        "There is no setting 'fraction-fit'. Did you mean 'cohort'? It is the number of clients in a round, not their "
        "share.",
    ),
    "option": (["--lr", "0.1"], "There is no option --lr. A setting is given as --set lr=0.1."),
    "alias": (["--clients-per-round", "3"], "There is no option --clients-per-round. Say --cohort 3."),
    "local-epochs": (
        ["--set", "local-epochs=1"],
        "Exactly one of 'local-steps' and 'local-epochs' must be above 0. Now local-steps=50 and local-epochs=1: also "
        "set local-steps=0 for epochs, or local-epochs=0 for steps.",
    ),
    "npz": (
        ["--set", "data=mnist", "--set", "data-path=mine.npz"],
        "The 'data' parameter mnist does not read mine.npz: set data=npz.",
    ),
    "idle": (
        ["--set", "partition=iid", "--set", "alpha=0.1"],
        "The partition iid does not read 'alpha': leave it out, or set partition=dirichlet.",
    ),
    "idle of a preset": (
        ["--preset", "fedavg", "--set", "mu=0.1"],
        "The solver sgd does not read 'mu': leave it out, or set solver=fedprox.",
    ),
    "letter": (["--set", "E=1"], "There is no setting 'E'. Did you mean 'local-epochs'?"),
    "file": (
        ["--set", "data=mine.csv"],
        "The 'data' parameter names the kind of data: set data=csv and data-path=mine.csv.",
    ),
}
CHOICES = {
    "device=gpu": "cuda",
    "compressor=topk": "top-k",
    "server-optimizer=adam": "fedadam",
    "solver=fedavg": "sgd",
    "partition=non-iid": "dirichlet",
    "model=ResNet-18": "resnet18",
}
"""Choices that users guess, and the one that each means."""


@pytest.mark.parametrize("guess", CHOICES)
def test_a_guessed_choice_is_answered_with_the_nearest(guess, capsys):
    assert main([*DRY, "--set", guess]) == 2
    assert capsys.readouterr().err.endswith(f"Got {guess.partition('=')[2]!r}. Did you mean '{CHOICES[guess]}'?\n")


@pytest.mark.parametrize("name", SENTENCES)
def test_a_guess_is_answered_with_what_to_type(name, capsys):
    words, sentence = SENTENCES[name]
    assert main([*DRY, *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fedsel: {sentence}")
    assert error.count("\n") == 1


def test_every_other_word_means_a_setting_and_is_no_setting_itself():
    known = known_defaults()
    assert ALIASES.keys() <= known.keys()
    assert not {*MEANT, *SHARES} & known.keys()
    assert sum(len(words.split()) for words in ALIASES.values()) == len(MEANT)


def test_a_grid_of_partitions_may_set_what_only_some_of_them_read(tmp_path):
    settings = {"alpha": 0.1, "rounds": 1}
    assert plan(tmp_path, ["random"], [1], settings, {"partition": ["iid", "dirichlet"]}).runs
    with pytest.raises(ConfigError, match="The partition iid does not read 'alpha'"):
        plan(tmp_path, ["random"], [1], settings | {"partition": "iid"}, {})
    solvers = {"solver": ["sgd", "fedprox"]}
    assert plan(tmp_path, ["random"], [1], {"mu": 0.1, "rounds": 1}, solvers).runs
    assert resolve({"partition": "iid", "preset": "isp-table-2"}).partition.partition == "iid"


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("fedsel 0.")


@pytest.mark.parametrize(
    ("command", "said"),
    [("compare", "interrupted; repeat the command to continue from here"), ("settings", "interrupted")],
)
def test_an_interruption_says_how_to_continue(command, said, monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("simulation.comparison.commands.compare", interrupted)
    monkeypatch.setattr("simulation.experiments.commands.settings", interrupted)
    words = ["compare", "--strategies", "random", "--out", "x"] if command == "compare" else ["settings"]
    assert main(words) == 130
    assert capsys.readouterr().err == f"fedsel: {said}\n"
