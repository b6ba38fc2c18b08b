"""`python -m laboratory bench deploy`: processor times by part, and one complete run of the command."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from laboratory.__main__ import main
from laboratory.bench.deployed import OTHERS, PARTS, processor_times
from tests.support.processes import looks_in_proc

BUSY = "import time\nwhile time.process_time() < 0.1: pass\nprint('done', flush=True)\ntime.sleep(600)"


@looks_in_proc
@pytest.mark.parametrize(
    ("words", "part"),
    [(("app_process.py",), "app processes"), (("-m", "anything"), OTHERS)],
)
def test_a_process_is_timed_under_its_part(words, part):
    with subprocess.Popen([sys.executable, "-c", BUSY, *words], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout.readline() == b"done\n"
            [(found, seconds)] = processor_times({busy.pid}).values()
        finally:
            busy.kill()
    assert found == part
    assert 0.08 <= seconds < 60
    time.sleep(0.01)
    assert processor_times({busy.pid}) == {}


@looks_in_proc
@pytest.mark.slow
@pytest.mark.e2e
def test_the_bench_measures_a_deployment_and_its_work(tmp_path: Path) -> None:
    out = tmp_path / "deploy.json"
    assert main(["bench", "deploy", "--local-steps", "5", "--rounds", "3", "--supernodes", "2", "--out", str(out)]) == 0
    [row] = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert (row["local_steps"], row["rounds"]) == (5, 3)
    assert 0 < row["median_s"] <= row["slowest_s"] < row["first_s"]
    assert sum(row["parts_cpu_s"].values()) == pytest.approx(row["cpu_s"])
    assert all(row["parts_cpu_s"][part] > 0 for part in PARTS)
    assert row["ratio"] == pytest.approx(row["cpu_s"] / row["work_cpu_s"])
