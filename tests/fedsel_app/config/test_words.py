"""Words that users guess: settings of other frameworks, options in place of --set, long lists of names."""

import pytest

from fedsel_app.cli import main
from fedsel_app.config import ConfigError
from fedsel_app.config.words import ALIASES, MEANT, SHARES, nearest_setting
from simulation.comparison.plan import plan
from simulation.experiments.configuration import known_defaults, resolve

DRY = ["run", "--dry-run"]
SENTENCES = {
    "learning-rate": (["--set", "learning-rate=0.1"], "There is no setting 'learning-rate'. Did you mean 'lr'?"),
    "learning_rate": (["--set", "learning_rate=0.1"], "There is no setting 'learning_rate'. Did you mean 'lr'?"),
    "batch_size": (["--set", "batch_size=8"], "There is no setting 'batch_size'. Did you mean 'batch-size'?"),
    "batch": (["--set", "batch=8"], "There is no setting 'batch'. Did you mean 'batch-size'?"),
    "epochs": (["--set", "epochs=1"], "There is no setting 'epochs'. Did you mean 'local-epochs'?"),
    "fraction": (
        ["--set", "fraction-fit=0.1"],
        "There is no setting 'fraction-fit'. Did you mean 'cohort'? It is the number of clients a round, not their "
        "share.",
    ),
    "option": (["--lr", "0.1"], "There is no option --lr. A setting is given as --set lr=0.1."),
    "option=": (["--alpha=0.1"], "There is no option --alpha. A setting is given as --set alpha=0.1."),
    "alias": (["--clients-per-round", "3"], "There is no option --clients-per-round. Say --cohort 3."),
    "unknown option": (["--frobnicate"], "There is no option --frobnicate; `fedsel run --help` lists them."),
    "stray word": (["extra"], "The word 'extra' belongs to no option; `fedsel run --help` lists them."),
    "local-epochs": (
        ["--set", "local-epochs=1"],
        "Exactly one of 'local-steps' and 'local-epochs' must be above 0. Now local-steps=50 and local-epochs=1: also "
        "set local-steps=0 for epochs, or local-epochs=0 for steps.",
    ),
    "preset": (["--preset", "fedavgg"], "There is no preset 'fedavgg'. Did you mean 'fedavg'? `fedsel presets` lists"),
    "npz": (
        ["--set", "data=mnist", "--set", "data-path=mine.npz"],
        "The 'data' parameter mnist does not read mine.npz: set data=npz.",
    ),
    "idle": (
        ["--set", "partition=iid", "--set", "alpha=0.1"],
        "The partition iid does not read 'alpha': leave it out, or set partition=dirichlet.",
    ),
    "idle of flwr's": (
        ["--set", "partition=flwr:DirichletPartitioner", "--set", "alpha=0.1"],
        "The partition flwr:DirichletPartitioner does not read 'alpha': leave it out, or set partition=dirichlet.",
    ),
    "idle of a preset": (
        ["--preset", "fedavg", "--set", "mu=0.1"],
        "The solver sgd does not read 'mu': leave it out, or set solver=fedprox.",
    ),
    "idle kept fraction": (
        ["--set", "compressor=qsgd", "--set", "kept-fraction=0.1"],
        "The compressor qsgd does not read 'kept-fraction': leave it out, or set compressor=top-k.",
    ),
    "idle momentum": (
        ["--set", "server-optimizer=fedadam", "--set", "server-momentum=0.1"],
        "The server-optimizer fedadam does not read 'server-momentum': leave it out, or set server-optimizer=momentum.",
    ),
    "idle rule": (
        ["--set", "krum-malicious=2"],
        "The aggregation mean does not read 'krum-malicious': leave it out, or set aggregation=krum.",
    ),
    "idle search": (
        ["--set", "isp-interval=5"],
        "The participation fixed does not read 'isp-interval': leave it out, or set participation=isp.",
    ),
    "letter": (["--set", "E=1"], "There is no setting 'E'. Did you mean 'local-epochs'?"),
    "clients": (["--set", "K=10"], "There is no setting 'K'. Did you mean 'clients'?"),
    "privacy": (["--set", "epsilon=1"], "There is no setting 'epsilon'. Did you mean 'dp-noise-multiplier'?"),
    "file": (
        ["--set", "data=mine.csv"],
        "The 'data' parameter says what kind of data it is: set data=csv and data-path=mine.csv.",
    ),
    "short option": (["-r", "5"], "There is no option -r; `fedsel run --help` lists them."),
}


CHOICES = {
    "device=gpu": "cuda",
    "compressor=topk": "top-k",
    "compressor=TopK": "top-k",
    "server-optimizer=adam": "fedadam",
    "server-optimizer=fedavg": "mean",
    "solver=FedProx": "fedprox",
    "solver=fedavg": "sgd",
    "partition=non-iid": "dirichlet",
    "data=MNIST": "mnist",
    "data=FMNIST": "fashion-mnist",
    "model=ResNet-18": "resnet18",
    "aggregation=trimmed_mean": "trimmed-mean",
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


def test_every_other_word_is_of_a_setting_and_no_setting_itself():
    known = known_defaults()
    assert ALIASES.keys() <= known.keys()
    assert not {*MEANT, *SHARES} & known.keys()
    assert sum(len(words.split()) for words in ALIASES.values()) == len(MEANT)


def test_the_nearest_setting_of_a_typo_and_of_nothing():
    assert nearest_setting("momentun", ["momentum", "lr"]) == "Did you mean 'momentum'?"
    assert nearest_setting("zzz", ["momentum", "lr"]) == ""
    assert nearest_setting("learning-rate", ["momentum"]) == ""


def test_a_claim_names_the_nearest_alone(capsys):
    assert main(["claims", "run", "fedcor-randum", "--out", "x"]) == 2
    assert len(capsys.readouterr().err) < 200


def test_a_swept_partition_may_have_a_setting_that_some_of_it_do_not_read(tmp_path):
    settings = {"alpha": 0.1, "rounds": 1}
    assert plan(tmp_path, ["random"], [1], settings, {"partition": ["iid", "dirichlet"]}).runs
    with pytest.raises(ConfigError, match="The partition iid does not read 'alpha'"):
        plan(tmp_path, ["random"], [1], settings | {"partition": "iid"}, {})
    solvers = {"solver": ["sgd", "fedprox"]}
    assert plan(tmp_path, ["random"], [1], {"mu": 0.1, "rounds": 1}, solvers).runs
    assert resolve({"partition": "iid", "preset": "isp-table-2"}).partition.partition == "iid"


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("fedsel 0.")


@pytest.mark.parametrize(
    ("command", "said"), [("compare", "interrupted; the same command goes on from here"), ("settings", "interrupted")]
)
def test_an_interruption_says_how_to_go_on(command, said, monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("simulation.comparison.commands.compare", interrupted)
    monkeypatch.setattr("simulation.experiments.commands.settings", interrupted)
    words = ["compare", "--strategies", "random", "--out", "x"] if command == "compare" else ["settings"]
    assert main(words) == 130
    assert capsys.readouterr().err == f"fedsel: {said}\n"
