"""Ray engine: how it ends a run that cannot go on."""

import subprocess
import sys

import pytest

ENDING = """
import os, time
from pathlib import Path
import ray
from simulation.engines import ray_engine

ray_engine.SHUTDOWN_S = 0.1
ray.shutdown = lambda: {shutdown}
ray_engine._end_everything("Interrupted", Path("runs/x"), ray_engine.INTERRUPTED)
"""


@pytest.mark.parametrize(
    ("shutdown", "code"), [("None", 130), ("os._exit(1)", 1), ("time.sleep(60)", 130)], ids=["ends", "exits", "hangs"]
)
def test_the_reason_is_told_even_where_ray_ends_the_process_or_never_ends(shutdown, code):
    """Ray's shutdown ends the process itself where another thread calls Ray after it."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDING.format(shutdown=shutdown)], capture_output=True, text=True, timeout=60
    )
    said = "\nInterrupted; the rounds so far are kept. Go on with: fedsel run --resume runs/x\n"
    assert (ended.returncode, ended.stderr) == (code, said)
