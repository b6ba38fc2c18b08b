"""`python -m laboratory bench deploy`: processor times by part."""

import subprocess
import sys
import time

import pytest

from laboratory.bench.deployed import OTHERS, processor_times
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
