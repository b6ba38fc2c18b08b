"""Choice of the engine: by the settings, then by the estimated seconds of the clients' work."""

import pytest

from fedsel_app.config import ConfigError
from simulation.engines import choice
from simulation.engines.choice import RAY_CLIENT_S, RAY_MESSAGE_S, RAY_START_S, STEP_S, choose, estimate
from simulation.experiments.configuration import resolve


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch):
    monkeypatch.setattr(choice, "usable_cores", lambda: 4)


@pytest.mark.parametrize(
    ("settings", "engine", "reason"),
    [
        ({}, "inline", "about"),
        ({"engine": "ray"}, "ray", "'engine' says so"),
        ({"engine": "inline", "model": "alexnet", "data": "cifar10"}, "inline", "'engine' says so"),
        ({"ray-address": "auto"}, "ray", "'ray-address' names a cluster"),
        ({"workers": 1}, "ray", "'workers' is set"),
        ({"links": "measured"}, "ray", "'links' is measured"),
        ({"client-gpus": 0.5}, "ray", "'client-gpus' is set"),
        ({"model": "alexnet", "data": "cifar10", "rounds": 100}, "ray", "about"),
    ],
)
def test_settings_decide_first_and_then_the_size_of_the_work(tmp_path, monkeypatch, settings, engine, reason):
    monkeypatch.chdir(tmp_path)  # no data set is there
    chosen = choose(resolve({"device": "cpu"} | settings))
    assert (chosen.engine, reason in chosen.reason) == (engine, True)
    assert str(chosen) == f"{engine}, as {chosen.reason}"
    assert chosen.simulate.__module__ == f"simulation.engines.{engine}_engine"


def test_the_estimate_by_hand():
    # Logistic regression on 64 pixels and 10 classes: 2 x 640 operations a sample. 4 of 20 clients take 50 steps, and
    # all 20 are probed on 8 mini-batches, with 32 samples each, in each of 10 rounds.
    forward_s = 2 * 640 * 32 / 5e10
    inline_s = 10 * (4 * 50 * (STEP_S + 3 * forward_s) + 20 * (STEP_S + 8 * forward_s))
    expected = estimate(resolve({"strategy": "hetero-select", "cohort": 4, "rounds": 10, "device": "cpu"}), workers=4)
    assert expected.inline_s == pytest.approx(inline_s)
    assert expected.ray_s == pytest.approx(RAY_START_S + inline_s / 4 + 20 * RAY_MESSAGE_S + 40 * RAY_CLIENT_S)


def test_one_core_is_never_faster_through_ray(monkeypatch):
    """One of a machine, or of those that runs side by side share."""
    long = resolve({"model": "cnn", "rounds": 10**6, "device": "cpu"})
    assert choose(long, cores=1).engine == "inline"
    monkeypatch.setattr(choice, "usable_cores", lambda: 4)
    assert choose(long).engine == "ray"
    monkeypatch.setattr(choice, "usable_cores", lambda: 1)
    assert choose(long).engine == "inline"


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"workers": 2}, "leave 'workers' at 0"),
        ({"ray-address": "auto"}, "'ray-address' empty"),
        ({"links": "measured"}, "set 'links' to simulated"),
    ],
)
def test_what_the_inline_engine_cannot_do_is_refused(settings, advice):
    with pytest.raises(ConfigError, match=advice):
        choose(resolve({"engine": "inline"} | settings))
