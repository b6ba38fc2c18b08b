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
        ({}, "inline", "too little of 1 s of local training"),
        ({"engine": "ray"}, "ray", "'engine' says so"),
        ({"engine": "inline", "model": "alexnet", "data": "cifar10"}, "inline", "'engine' says so"),
        ({"workers": 1}, "ray", "'workers' is set"),
        ({"links": "measured"}, "ray", "'links' is measured"),
        ({"client-gpus": 0.5}, "ray", "'client-gpus' is set"),
        # 1,280 operations a sample: 110 microseconds a step. Ray's messages take longer than 50 steps.
        ({"rounds": 10_000}, "inline", "too little of 276 s of local training"),
        ({"rounds": 10_000, "local-steps": 500}, "ray", "4 cores share about 2,756 s of local training"),
        # 183,552 operations: 1.57 ms a step, 0.078 s an update, of which Ray saves 0.0387 s. 12.4 s need 320 updates.
        ({"model": "cnn", "rounds": 63}, "inline", "too little of 25 s of local training"),
        ({"model": "cnn", "rounds": 65}, "ray", "4 cores share about 25 s of local training"),
        ({"model": "cnn", "rounds": 65, "cohort": 1}, "inline", "too little of 5 s of local training"),
    ],
)
def test_settings_decide_first_and_then_the_size_of_the_work(settings, engine, reason):
    chosen = choose(resolve({"device": "cpu"} | settings))
    assert (chosen.engine, reason in chosen.reason) == (engine, True), chosen
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
