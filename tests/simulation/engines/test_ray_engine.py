"""Ray engine: how it ends a run that failed or was interrupted."""

import os
import time
from pathlib import Path

import pytest
import ray

from simulation.engines import ray_engine


@pytest.mark.parametrize(
    ("shutdown", "code"), [(lambda: None, 130), (lambda: os._exit(1), 1), (lambda: time.sleep(60), 130)]
)
def test_the_reason_is_told_even_where_ray_ends_the_process_or_never_ends(shutdown, code, monkeypatch, capfd):
    """Ray's shutdown may return, end the process, or never return. It ends the process if a thread calls Ray later."""
    monkeypatch.setattr(ray, "shutdown", shutdown)
    monkeypatch.setattr(ray_engine, "SHUTDOWN_S", 0.1)
    child = os.fork()
    if child == 0:
        ray_engine._end_everything("Interrupted", Path("runs/x"), 130)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    said = "\nInterrupted; the rounds so far are kept. Go on with: fedsel run --resume runs/x\n"
    assert capfd.readouterr().err == said
