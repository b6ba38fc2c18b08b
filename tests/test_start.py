"""Start of each command: only what it needs is imported; each library below takes a tenth of a second to two."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.sources import ROOT

HEAVY = ("flwr", "flwr.simulation", "torch", "torchvision", "ray", "sklearn", "scipy.stats", "pandas", "sympy")
HEAVY += ("matplotlib", "matplotlib.pyplot")
COMMANDS = {
    "--help": set(),
    "watch": set(),
    "provision": {"flwr"},
    "submit": {"flwr"},
    "methods": {"flwr"},
    "settings": {"flwr"},
    "presets": {"flwr"},
    "dry run": {"flwr", "torch"},
    "dry comparison": {"flwr", "torch"},
    "run": {"flwr", "torch"},
    "report": {"flwr", "torch", "matplotlib", "scipy.stats", "pandas"},
}
"""Command -> what it may import of `HEAVY`; each has what stands above it, as one process carries out all of them."""

CALLS = """
import contextlib, json, pathlib, sys
from simulation.workbench.cli import main

small = "--rounds", "2", "--clients", "3", "--cohort", "2", "--set", "local-steps=2"
heavy, folder, imported = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]), {}
calls = {
    "--help": ["--help"],
    "watch": ["watch", str(folder / "planned")],
    "provision": ["provision", "--server", "localhost", "--clients", "1", "--out", str(folder / "federation")],
    "submit": ["submit", str(folder / "federation" / "admin"), *small, "--set", "attack=sign-flip"],
    "methods": ["methods"],
    "settings": ["settings", "lr"],
    "presets": ["presets", "paper"],
    "dry run": ["run", "--dry-run"],
    "dry comparison": ["compare", "--strategies", "random,oort", "--out", str(folder / "compared"), "--dry-run"],
    "run": ["run", *small, "--set", "engine=inline", "--out", str(folder / "run")],
    "report": ["report", str(folder / "run")],
}
with contextlib.redirect_stdout(sys.stderr):
    for name in json.loads(sys.argv[3]):
        try:
            code = main(calls[name])
        except SystemExit as ended:
            code = ended.code
        imported[name] = [code, [module for module in heavy if module in sys.modules]]
print(json.dumps(imported))
"""
"""Program that carries out the commands named in its third argument, one after another."""
TORCHLESS = [name for name, modules in COMMANDS.items() if "torch" not in modules]


@pytest.mark.parametrize(
    "names", [TORCHLESS, pytest.param(list(COMMANDS), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_every_command_imports_what_it_needs(tmp_path, names):
    (tmp_path / "planned").mkdir()
    (tmp_path / "planned" / "config.json").write_text(json.dumps({"rounds": 3}), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CALLS, json.dumps(HEAVY), str(tmp_path), json.dumps(names)]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    imported = json.loads(ended.stdout)
    assert list(imported) == names
    for command, (code, modules) in imported.items():
        assert (code == 0) == (command != "submit"), "no deployed client attacks, and that is refused at once"
        assert set(modules) <= COMMANDS[command], command
