"""Ray engine: how it ends a run that failed or was interrupted."""

import subprocess
import sys

ENDING = """
import os, time
from pathlib import Path
import ray
from simulation.engines import ray_engine

ray_engine.SHUTDOWN_S = 0.1
for shutdown in (lambda: None, lambda: os._exit(1), lambda: time.sleep(60)):
    child = os.fork()
    if child == 0:
        ray.shutdown = shutdown
        ray_engine._end_everything("Interrupted", Path("runs/x"), ray_engine.INTERRUPTED)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_the_reason_is_told_even_where_ray_ends_the_process_or_never_ends():
    """Ray's shutdown may return, end the process, or never return. It ends the process if a thread calls Ray later."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDING], capture_output=True, text=True, timeout=60, check=True
    )
    said = "\nInterrupted; the rounds so far are kept. Go on with: fedsel run --resume runs/x\n"
    assert (ended.stdout.split(), ended.stderr) == (["130", "1", "130"], 3 * said)
