"""Every method through Flower's Ray engine: three rounds of the digits with 20 clients, one process for all of them."""

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from simulation.engines.ray_engine import simulate
from strategies import STRATEGIES
from tests.support.engines import AT_ONCE, engine
from tests.support.rounds import read_rows

__all__ = ["engine"]
pytestmark = [pytest.mark.slow, pytest.mark.e2e]
CLIENTS = 20
SMALL = {"clients": CLIENTS, "cohort": 5, "rounds": 3, "local-steps": 20, "device": "cpu", "workers": 2}
ISP = {"participation": "isp", "isp-interval": 2, "isp-draws": 3, "holdout-fraction": 0.2}


def run(settings: dict[str, object]) -> list[dict[str, object]]:
    """The rows of a run."""
    folder = simulate(resolve(settings), lambda row: None)
    return read_rows(folder)


def rows_of(engine, folder, method, **more):
    settings = SMALL | AT_ONCE.get(method, {}) | more | {"strategy": method, "out": str(folder / "run")}
    rows = engine.submit(run, settings).result()
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["failures"] == []
        assert row["aggregated"] == row["selected"] != []
        assert row["uplink_bytes"] > 0
    return rows


@pytest.mark.parametrize("method", STRATEGIES)
def test_a_method_runs_and_learns(engine, tmp_path, method):
    rows = rows_of(engine, tmp_path, method)
    if STRATEGIES[method].exact_cohort:
        assert [len(row["selected"]) for row in rows] == [5, 5, 5]
    assert rows[-1]["accuracy"] > 0.5


@pytest.mark.parametrize("method", ["random", "power-of-choice", "fedcor", "fed-cbs", "delta"])
def test_isp_runs_around_a_method(engine, tmp_path, method):
    rows = rows_of(engine, tmp_path, method, **ISP)
    assert ["search" in row for row in rows] == [True, False, True]
    for row in rows:
        assert row["client_updates"] == len(row["aggregated"]) + (CLIENTS if "search" in row else 0)
    assert rows[0]["cohort"] == rows[1]["cohort"]
    assert rows[-1]["accuracy"] > 0.5


def test_terraform_leaves_isp_no_room(engine, tmp_path):
    with pytest.raises(ConfigError, match="terraform decides itself how many clients train"):
        rows_of(engine, tmp_path, "terraform", **ISP)
