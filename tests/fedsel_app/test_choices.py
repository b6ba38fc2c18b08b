"""Choices: solvers, compressors, aggregations and server optimizers are their traits and their algorithms."""

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
from tests.support.sources import ROOT

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
