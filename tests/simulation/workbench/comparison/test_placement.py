"""How many runs fit side by side on this machine, and what each gets of it."""

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.workbench.comparison import plan


@pytest.mark.parametrize(
    ("settings", "jobs", "workers"),
    [({}, 1, 0), ({}, 3, 2), ({}, 20, 1), ({"workers": 5}, 3, 5), ({"client-gpus": 0.5}, 3, 1)],
)
def test_workers_of_a_run_beside_others(monkeypatch, settings, jobs, workers):
    monkeypatch.setattr(plan, "usable_cores", lambda: 8)
    assert plan.workers_each(resolve(settings), jobs) == workers


@pytest.mark.parametrize(
    ("settings", "gpus", "jobs"),
    [
        ({}, 2, 8),
        ({"workers": 3}, 0, 2),
        ({"workers": 99}, 0, 1),
        ({"client-gpus": 0.5}, 1, 2),
        ({"client-gpus": 0.1}, 1, 8),
        ({"client-gpus": 0.25, "workers": 2}, 2, 4),
        ({"client-gpus": 1.0, "workers": 2}, 1, 1),
        ({"client-gpus": 0.5}, 0, 8),
    ],
)
def test_as_many_jobs_as_cores_and_gpus_have_room_for(monkeypatch, settings, gpus, jobs):
    monkeypatch.setattr(plan, "usable_cores", lambda: 8)
    assert plan.default_jobs([resolve(settings)], gpus) == jobs


def test_side_by_side_every_run_sees_its_own_gpus(monkeypatch):
    def seen(settings, gpus):
        return [plan.visible_gpus(slot, resolve(settings), gpus).get("CUDA_VISIBLE_DEVICES") for slot in range(3)]

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert seen({"client-gpus": 0.5}, 1) == [None, None, None]
    assert seen({"client-gpus": 0.5}, 2) == ["0", "1", "0"]
    assert seen({"client-gpus": 1.0, "workers": 2}, 4) == ["0,1", "2,3", "0,1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert seen({}, 2) == ["4", "7", "4"]
