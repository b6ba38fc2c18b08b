"""Families of processes end together, and signals wait for it."""

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from simulation import processes


def python_child(tmp_path: Path, code: str) -> processes.Child:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return processes.start("child", str(tmp_path), command, tmp_path / "log", tmp_path, dict(os.environ))


def await_line(path: Path, text: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while text not in (path.read_text() if path.exists() else ""):
        assert time.monotonic() < deadline, f"no {text!r} in {path}"
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="strays are found through /proc")
def test_end_reaches_a_deaf_grandchild_that_left_the_group(tmp_path):
    child = python_child(
        tmp_path,
        """
        import subprocess, sys
        deaf = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
        subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
        """,
    )
    await_line(child.log, "deaf")
    assert child.process.wait() == 0
    assert len(processes.running([child])) == 1
    assert processes.end([child], 0.3) == set()
    assert processes.running([child]) == set()


def test_signals_wait_for_the_end_of_the_block():
    done = []

    def interrupted() -> None:
        with processes.signals_deferred():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done


def test_sigterm_unwinds_the_block_and_its_handler_is_put_back():
    with pytest.raises(SystemExit) as ended, processes.exit_on_signals():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
