"""Three hundred rounds in which a tenth of every cohort is lost: nothing else is, and memory does not grow."""

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from simulation.workbench.comparison.run_processes import FEDSEL
from tests.support.processes import memory_mb
from tests.support.rounds import rounds, written

ROUNDS, SETTLED = 300, 60
SETTINGS = ("--rounds", str(ROUNDS), "--set", "client-failure-rate=0.1", "--set", "local-steps=5")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_memory_is_flat_and_every_loss_is_recorded(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen([*FEDSEL, "run", *SETTINGS, "--out", str(out)], stdout=subprocess.DEVNULL)
    seen = []
    while process.poll() is None:
        if (done := written(out)) >= SETTLED:
            try:
                seen.append((done, memory_mb(process.pid)))
            except (OSError, IndexError):  # it has just ended
                break
        time.sleep(0.2)
    assert process.wait() == 0
    slope = np.polyfit(*np.array(seen).T, 1)[0]
    print(f"{seen[0][1]:.0f} MiB after {SETTLED} rounds, {seen[-1][1]:.0f} at the end: {slope:.3f} MiB a round")
    assert slope < 0.1
    rows = rounds(out)
    assert [row["round"] for row in rows] == list(range(1, ROUNDS + 1))
    selected = sum(len(row["selected"]) for row in rows)
    assert sum(len(row["failures"]) for row in rows) == pytest.approx(selected / 10, rel=0.3)
    for row in rows:
        failed = {failure["client"] for failure in row["failures"]}
        assert set(row["selected"]) == failed | set(row["aggregated"])
        assert failed.isdisjoint(row["aggregated"])
