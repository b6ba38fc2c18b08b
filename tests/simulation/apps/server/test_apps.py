"""Five apps in the form of Flower's examples: with Flower's FedAvg, and converted as docs/flower-app.md says."""

import inspect
import re
from types import ModuleType

import numpy as np
import pytest

from fedsel_app.config import ConfigError
from tests.simulation.apps.server import apps
from tests.support.documentation import PAGES
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, node

pytestmark = pytest.mark.usefixtures("task_identity")
ROUNDS = 3
IMPORTS = "from flwr.clientapp import ClientApp\nfrom flwr.serverapp.strategy import FedAvg\n"
METHODS = {"hetero-select": 'compressor="top-k", ', "oort": "", "divfl": "", "hics-fl": "", "fed-cbs": ""}
"""Method of the table -> its settings."""
SETTINGS = {"scikit_learn": 'loss_key="test_logloss", '}
"""App -> the settings that it needs with any method."""
REFUSALS = {
    "must return its loss": "no loss",
    "biases of the output layer": "no class biases",
    "they are one tensor": "tied weights",
}
"""Part of a refusal -> its words in the table."""
ROWS = PAGES["docs/flower-app.md"].split("<!-- apps:")[-1].split("\n\n")[0].splitlines()[3:]


def converted(text, line):
    """The text of an app after the change that docs/flower-app.md describes; `line` begins the strategy's arguments."""
    text = text.replace("from flwr.clientapp import ClientApp", "from fedsel_app import client_app")
    text = text.replace("from flwr.serverapp.strategy import FedAvg", "import fedsel_app")
    text = re.sub(
        r"(?:min_train_nodes|min_available_nodes|fraction_train)=[^,)]*(?:, )?",
        "",
        text.replace("ClientApp(", "client_app(label_counts=counts"),
    )
    return text.replace("FedAvg(", f"fedsel_app.strategy({line}")


def built(name, method="", *, cohort=CLIENTS, settings="", line=True):
    """Client app, strategy and initial arrays of the app `name`: with fedsel's `method`, or as it was with FedAvg."""
    if not method:
        return getattr(apps, name)()
    arguments = f'"{method}", clients={CLIENTS}, cohort={cohort}, {SETTINGS.get(name, "")}{settings}'
    module = ModuleType("converted_apps")
    exec(converted(inspect.getsource(apps), arguments), vars(module))
    return (getattr(module, name)()[0] if line else getattr(apps, name)()[0], *getattr(module, name)()[1:])


def ran(name, method="", **options):
    """Arrays after three rounds in this process, and the grid."""
    app, strategy, initial = built(name, method, **options)
    grid = InProcessGrid(app, {90 + client: node(client) for client in range(CLIENTS)})
    found = strategy.start(grid=grid, initial_arrays=initial, num_rounds=ROUNDS).arrays
    return {key: array.numpy() for key, array in found.items()}, grid


def difference(found, expected):
    """The largest difference between two models. Whole numbers are left out, because fedsel keeps the initial ones."""
    assert list(found) == list(expected)
    return max(np.abs(found[key] - expected[key]).max() for key in expected if found[key].dtype.kind == "f")


def outcome(name, method):
    """Why the run is refused or fails; empty if it runs with half of the clients."""
    try:
        found, grid = ran(name, method, cohort=2, settings=METHODS[method])
    except (ConfigError, RuntimeError) as error:
        return next(words for part, words in REFUSALS.items() if part in str(error))
    assert all(np.isfinite(array).all() for array in found.values())
    assert sum(message.metadata.message_type == "train" for message in grid.pushed) == 2 * ROUNDS
    return ""


@pytest.mark.parametrize("name", [app.__name__ for app in apps.APPS])
def test_an_app_is_as_with_fedavg_and_runs_with_other_methods_as_the_page_says(tmp_path, monkeypatch, name):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    expected, _ = ran(name)
    row = f"| {name.replace('_', '-')} | "
    [(most, refused)] = [line.removeprefix(row).strip(" |").split(" | ") for line in ROWS if line.startswith(row)]
    for method, line in (("random", False), ("fedavg", True)):
        found, _ = ran(name, method, line=line)
        far = difference(found, expected)
        print(f"{name}, {method}, with fedsel's line: {line}. Largest difference to FedAvg: {far:.2g}")
        assert far <= float(most)
    before = (IMPORTS + inspect.getsource(getattr(apps, name))).splitlines()
    after = converted("\n".join(before), "").splitlines()
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 4
    outcomes = {method: outcome(name, method) for method in METHODS}
    assert refused == (", ".join(f"{method}: {words}" for method, words in outcomes.items() if words) or "none")
