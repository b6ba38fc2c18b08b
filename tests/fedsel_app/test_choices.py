"""Choices: solvers, compressors, aggregations and server optimizers are their traits and their algorithms."""

import ast
import json
import subprocess
import sys

import pytest

from clients.compression import error_feedback
from fedsel_app.config.compression import COMPRESSORS
from fedsel_app.config.server import AGGREGATIONS, SERVER_OPTIMIZERS
from fedsel_app.config.training import SOLVERS
from fedsel_app.solvers import EQUATIONS
from strategies.aggregation.robust import CENTRES, CHOSEN
from strategies.aggregation.server_optimizer import SECOND_MOMENTS
from tests.support.sources import ROOT, nodes

CHOICES = {
    "solver": SOLVERS,
    "compressor": COMPRESSORS,
    "aggregation": AGGREGATIONS,
    "server-optimizer": SERVER_OPTIMIZERS,
}
NEEDED = {
    "feddyn": {"compressor": "none", "server-optimizer": "mean"},
    "fednova": {"local-steps": 0, "local-epochs": 1},
    "krum": {"cohort": 5},
    "multi-krum": {"cohort": 5},
}
"""Settings that a choice needs, or in which it differs from others."""

PROGRAM = """
import json, sys
from dataclasses import replace
from pathlib import Path

from fedsel_app.config import GROUPS, ConfigError
from fedsel_app.config.compression import COMPRESSORS
from fedsel_app.config.server import AGGREGATIONS, SERVER_OPTIMIZERS
from fedsel_app.config.training import SOLVERS
from fedsel_app.config.settings import meanings

tables = {
    "solver": SOLVERS, "compressor": COMPRESSORS, "aggregation": AGGREGATIONS, "server-optimizer": SERVER_OPTIMIZERS
}
for table in tables.values():
    table |= {f"my-{name}": traits for name, traits in table.items()}
SOLVERS["my-scaffold"] = replace(SOLVERS["scaffold"], title="MySolver")
# The settings declare the choices of their tables when they are imported.
for entry in (entry for group in GROUPS.values() for entry in group.entries() if entry.key in tables):
    entry.choices.update(meanings(tables[entry.key]))

from clients.compression import error_feedback
from fedsel_app.solvers import EQUATIONS
from fedsel_app.wiring.configuration import resolve
from simulation.engines.inline_engine import simulate
from strategies.aggregation.robust import CENTRES, CHOSEN
from strategies.aggregation.server_optimizer import SECOND_MOMENTS
from tests.bits.table import folder_bits

for table in (EQUATIONS, error_feedback.COMPRESSORS, CENTRES, CHOSEN, SECOND_MOMENTS):
    table |= {f"my-{name}": algorithm for name, algorithm in table.items()}

small = {"strategy": "random", "clients": 6, "cohort": 3, "rounds": 3, "local-steps": 2, "seed": 7, "device": "cpu"}
needed, folder, found = json.loads(sys.argv[1]), Path(sys.argv[2]), {}
for setting, table in tables.items():
    for name in table:
        values = small | needed.get(name.removeprefix("my-"), {}) | {setting: name, "out": str(folder / setting / name)}
        found[f"{setting} {name}"] = folder_bits(simulate(resolve(values), lambda row: None))
try:
    resolve(small | {"solver": "my-scaffold", "optimizer": "adam"})
except ConfigError as error:
    found["refusal"] = str(error)
print(json.dumps(found))
"""
"""Program that adds each choice under a second name, only to its two tables, and then runs every choice."""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    command = [sys.executable, "-c", PROGRAM, json.dumps(NEEDED), str(tmp_path_factory.mktemp("runs"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("setting", "name"), [(setting, name) for setting, table in CHOICES.items() for name in table])
def test_a_choice_added_to_its_two_tables_runs_as_the_one_that_it_copies(found, setting, name):
    assert found[f"{setting} my-{name}"] == found[f"{setting} {name}"]


def test_the_runs_of_different_choices_differ(found):
    solvers = {name: found[f"solver {name}"][-1] for name in SOLVERS}
    assert len(set(solvers.values())) == len(solvers)


def test_an_added_choice_is_refused_by_its_traits(found):
    assert found["refusal"] == (
        "Set 'optimizer' to sgd (it is adam), or choose another 'solver': MySolver works only with plain SGD."
    )


def test_each_choice_has_an_algorithm():
    assert [*EQUATIONS] == [*SOLVERS]
    assert [*error_feedback.COMPRESSORS] == [*COMPRESSORS]
    assert {"mean", *CENTRES, *CHOSEN} == {*AGGREGATIONS}
    assert [*SECOND_MOMENTS] == [name for name, traits in SERVER_OPTIMIZERS.items() if traits.adaptive]


WITH_NAMES = {
    "clients/compression/error_feedback.py",
    "fedsel_app/config/compression.py",
    "fedsel_app/config/server.py",
    "fedsel_app/config/training.py",
    "fedsel_app/solvers.py",
    "simulation/apps/server/flowers_words.py",  # Flower's own names
    "simulation/apps/server/settings.py",  # FedProx is the clients' in a user's app
    "strategies/aggregation/robust.py",
    "strategies/aggregation/server_optimizer.py",
    "strategies/methods/optrate.py",  # the method's equations are those of top-k
}
"""Files that may compare names of choices, or have a table of them."""
COMMON = {"mean", "median", "momentum", "none", "sgd"}
"""Names that other settings use for their values too."""


def names_compared(path):
    """Names of choices that a file compares with a value, or uses as keys; `COMMON` ones where the setting is named."""
    for node in nodes(path):
        if isinstance(node, ast.Compare | ast.Dict | ast.MatchValue):
            parts = node.keys if isinstance(node, ast.Dict) else [node]
            walked = (each for part in parts if part for each in ast.walk(part))
            strings = {each.value for each in walked if isinstance(each, ast.Constant)}
            text = ast.unparse(node) if isinstance(node, ast.Compare) else ""
            for setting, table in CHOICES.items():
                named = setting.replace("-", "_") in text
                yield from (name for name in table if name in strings and (named or name not in COMMON))


def test_no_other_file_asks_for_the_name_of_a_choice():
    tops = ("fedsel_app", "strategies", "clients", "simulation")
    files = [path for top in tops for path in (ROOT / top).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): sorted({*names_compared(path)}) for path in files}
    assert {name: names for name, names in found.items() if names and name not in WITH_NAMES} == {}
