"""Command line: exit codes, sentences of refusal, plans and lists. Nothing is run."""

import json
import logging
import re
import tomllib

import flwr.simulation
import pytest

import simulation.engines.inline_engine
import simulation.operations.deployment.deployed_run
from fedsel_app.config import ConfigError, RunConfig
from fedsel_app.presets.preset import flatten, preset_files
from fedsel_app.wiring.configuration import known_defaults, resolve
from simulation.workbench.cli import main, parser
from simulation.workbench.command_line.parser import EXAMPLES, GROUPS, overrides, parse_setting
from strategies import STRATEGIES

SMALL = ["--clients", "4", "--cohort", "2", "--rounds", "1"]


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch, tmp_path):
    """Isolation: no run and no process may start; runs/ and data/ would be in an empty folder."""

    def started(*args, **kwargs):
        pytest.fail("the run was started")

    monkeypatch.setattr(flwr.simulation, "run_simulation", started)
    monkeypatch.setattr(simulation.engines.inline_engine, "run_with", started)
    monkeypatch.setattr(simulation.operations.deployment.deployed_run, "Deployment", started)
    monkeypatch.setattr(simulation.operations.deployment.deployed_run, "submit_to_flower", started)
    monkeypatch.chdir(tmp_path)
    level = logging.getLogger("flwr").level
    yield
    logging.getLogger("flwr").setLevel(level)


def called(capsys, *arguments):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def taken(folder):
    """Run folder that is already used."""
    folder.mkdir()
    (folder / "rounds.jsonl").write_text('{"round": 1}\n', encoding="utf-8")


WRONG = {
    "data": (["--set", "data=mnist"], "The data set 'mnist' is absent from "),
    "file": (["--set", "data=npz", "--set", "data-path=none.npz"], "none.npz' does not exist."),
    "file of a plan": (["--dry-run", "--set", "data=npz", "--set", "data-path=none.npz"], "none.npz' does not exist."),
    "cohort": (["--clients", "3", "--cohort", "4"], "must be at most 'clients' (3). Got 4."),
    "fit": (["--set", "model=alexnet"], "alexnet"),
    "partition": (["--set", "min-examples=1000"], "min-examples"),
    "out": (["--out", "taken"], "already has a run"),
}


@pytest.mark.parametrize(
    ("command", "name"), [*(("run", name) for name in WRONG), ("deploy", "data"), ("deploy", "out")]
)
def test_wrong_settings_are_one_sentence_and_exit_code_2(capsys, tmp_path, command, name):
    taken(tmp_path / "taken")
    arguments, said = WRONG[name]
    code, _, error = called(capsys, command, *arguments)
    assert code == 2
    assert error.startswith("fedsel: ")
    assert said in error
    assert error.count("\n") == 1
    assert error.endswith("\n")
    assert "Traceback" not in error
    assert {path.name for path in tmp_path.iterdir()} == {"taken"}


def test_a_dry_run_prints_the_configuration_as_a_preset_and_the_plan(capsys, tmp_path):
    arguments = ["--strategy", "random", "--seed", "3", "--set", "lr=0.1", "--set", "model=cnn"]
    code, out, error = called(capsys, "run", "--dry-run", *SMALL, *arguments)
    assert (code, error) == (0, "")
    wanted = {"strategy": "random", "seed": 3, "lr": 0.1, "model": "cnn", "clients": 4, "cohort": 2, "rounds": 1}
    assert resolve(flatten(tomllib.loads(out))) == resolve(wanted)
    data, engine = (line for line in out.splitlines() if line.startswith("#"))
    # 1,797 digits, a fifth of them for testing
    sizes = data.removeprefix("# data: digits, ").replace(" training and ", " ").split()
    assert int(sizes[0].replace(",", "")) + int(sizes[1].replace(",", "")) == 1797
    assert engine == "# engine: inline, as Ray would save too little of 0 s of local training"
    (tmp_path / "mine.toml").write_text(out, encoding="utf-8")
    assert resolve({"preset": str(tmp_path / "mine.toml")}) == resolve(wanted)


@pytest.mark.parametrize("command", ["run", "deploy", "submit x", "compare --out x"])
def test_each_flag_of_a_setting_sets_it(command):
    """--initial-model was read into a name with an underscore, and had no effect."""
    name, *others = command.split()
    keys = [entry.key for entry in RunConfig.entries() if not (entry.own and name == "compare")]
    given = overrides(parser().parse_args([name, *others, *(word for key in keys for word in (f"--{key}", "7"))]))
    assert {key: str(given[key]) for key in keys} == dict.fromkeys(keys, "7")


@pytest.mark.parametrize(("key", "one", "other"), [("cohort", 3, 20), ("strategy", "oort", "full")])
def test_a_flag_and_set_must_agree(key, one, other):
    words = ["run", f"--{key}", str(one), "--set"]
    assert overrides(parser().parse_args([*words, f"{key}={one}"])) == {key: one}
    with pytest.raises(ConfigError, match=f"Give '{key}' once: --{key} says {one}, and --set says {other}"):
        overrides(parser().parse_args([*words, f"{key}={other}"]))


def test_every_method_setting_and_preset_is_listed(capsys):
    listed = ((["methods"], STRATEGIES), (["settings", "--all"], known_defaults()), (["presets"], preset_files()))
    for command, names in listed:
        code, out, error = called(capsys, *command)
        assert (code, error) == (0, "")
        assert [name for name in names if name not in out.split()] == []


def test_the_most_important_settings_are_listed_first(capsys):
    code, out, _ = called(capsys, "settings")
    assert code == 0
    assert {"rounds", "data", "lr"} <= {*out.split()}
    assert not {"trim-share", "oort.penalty"} & {*out.split()}
    count = int(re.search(r"^(\d+) more: `fedsel settings --all`", out, re.MULTILINE)[1])
    assert count + sum(line.startswith("  ") and line[2] != " " for line in out.splitlines()) == len(known_defaults())


def test_settings_are_searched(capsys):
    code, out, _ = called(capsys, "settings", "krum-malicious")
    assert code == 0
    assert out.splitlines()[-3:] == [
        "  krum-malicious = 1",
        "      number of malicious clients that krum and multi-krum withstand, f; in [0,",
        "      ∞)",
    ]
    code, out, error = called(capsys, "settings", "momentun")
    assert (code, out) == (2, "")
    assert error.startswith("fedsel: No setting has 'momentun' in its key or its meaning. Did you mean 'momentum'?")


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("rounds=3", "rounds", 3),
        ("lr=1e-3", "lr", 1e-3),
        ("download=true", "download", True),
        ("data=mnist", "data", "mnist"),
        ("data='mnist'", "data", "mnist"),
        ('out="5"', "out", "5"),
        ("out=", "out", ""),
        ("out=a=b c", "out", "a=b c"),
        ("out=2026-01-31", "out", "2026-01-31"),
        (" lr = 0.5", "lr", 0.5),
        ("strategy=my.module:Mine", "strategy", "my.module:Mine"),
    ],
)
def test_a_setting_is_read_as_toml_or_as_plain_text(text, key, value):
    read = parse_setting(text)
    assert read == (key, value)
    assert type(read[1]) is type(value)


@pytest.mark.parametrize("engine", ["auto", "inline", "ray"])
def test_a_run_that_could_start_is_started(capsys, monkeypatch, engine):
    """The tests above rely on this: with valid settings the engine is reached."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # as the tests import Ray before the run
    started = []
    monkeypatch.setattr(
        flwr.simulation, "run_simulation", lambda **arguments: started.append(("ray", arguments["num_supernodes"]))
    )
    monkeypatch.setattr(
        simulation.engines.inline_engine,
        "run_with",
        lambda federation, config, on_round: started.append(("inline", len(federation.nodes()))),
    )
    monkeypatch.setattr("simulation.workbench.report.one_run.report_run", lambda folder, console: None)
    code, out, error = called(capsys, "run", *SMALL, "--engine", engine, "--set", "device=cpu")
    expected = "ray" if engine == "ray" else "inline"
    assert (code, error, started) == (0, "", [(expected, 4)])
    assert out.splitlines()[1].startswith(f"Engine: {expected}, as ")


def test_a_resumed_run_may_change_its_place_but_not_its_settings(capsys, tmp_path):
    folder = tmp_path / "moved"
    folder.mkdir()
    _, out, _ = called(capsys, "run", "--dry-run", "--rounds", "7")
    (folder / "config.json").write_text(json.dumps(flatten(tomllib.loads(out))), encoding="utf-8")
    resume = ("run", "--dry-run", "--resume", str(folder))
    _, out, _ = called(capsys, *resume, "--set", "workers=3")
    values = flatten(tomllib.loads(out))
    assert (values["workers"], values["rounds"], values["out"]) == (3, 7, str(folder))
    for foreign in (["--rounds", "9"], ["--out", "elsewhere"]):
        code, _, error = called(capsys, *resume, *foreign)
        assert (code, "leave out " + foreign[0].strip("-") in error) == (2, True)


def test_the_help_shows_each_command_once_by_what_one_does(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    commands = [name for names in GROUPS.values() for name in names]
    assert sorted(commands) == sorted(set(EXAMPLES) - {"fedsel"})
    assert all(said.count(f"\n  {name} ") == 1 for name in commands)
