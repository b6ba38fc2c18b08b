"""Choice of the engine: by the settings, then by the number of client updates."""

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from simulation.engines import choice
from simulation.engines.choice import choose


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch):
    monkeypatch.setattr(choice, "usable_cores", lambda: 4)


@pytest.mark.parametrize(
    ("settings", "engine", "reason"),
    [
        ({}, "inline", "100 client updates are too few"),
        ({"engine": "ray"}, "ray", "'engine' says so"),
        ({"engine": "inline", "model": "alexnet", "data": "cifar10"}, "inline", "'engine' says so"),
        ({"workers": 1}, "ray", "'workers' is set"),
        ({"links": "measured"}, "ray", "'links' is measured"),
        ({"client-gpus": 0.5}, "ray", "'client-gpus' is set"),
        ({"rounds": 100, "cohort": 5}, "ray", "4 cores share 500 client updates"),
        ({"rounds": 100, "cohort": 5, "clients": 500}, "ray", "4 cores share 500 client updates"),
        ({"rounds": 100, "cohort": 5, "clients": 501}, "inline", "500 client updates are too few"),
        ({"rounds": 99, "cohort": 5}, "inline", "495 client updates are too few"),
        ({"model": "alexnet", "data": "cifar10", "rounds": 100}, "ray", "4 cores share 500 client updates"),
    ],
)
def test_settings_decide_first_and_then_the_size_of_the_work(tmp_path, monkeypatch, settings, engine, reason):
    monkeypatch.chdir(tmp_path)  # no data set is there
    chosen = choose(resolve({"device": "cpu"} | settings))
    assert (chosen.engine, reason in chosen.reason) == (engine, True)
    assert str(chosen) == f"{engine}, as {chosen.reason}"
    assert chosen.simulate.__module__ == f"simulation.engines.{engine}_engine"


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"workers": 2}, "leave 'workers' at 0"),
        ({"links": "measured"}, "set 'links' to simulated"),
    ],
)
def test_what_the_inline_engine_cannot_do_is_refused(settings, advice):
    with pytest.raises(ConfigError, match=advice):
        choose(resolve({"engine": "inline"} | settings))


def test_a_simulation_whose_server_does_not_wait_has_no_measured_links():
    settings = {"strategy": "random", "waiting": "buffered", "links": "measured"}
    with pytest.raises(ConfigError, match="Set 'links' to simulated, or 'waiting' to synchronous"):
        choose(resolve(settings))
