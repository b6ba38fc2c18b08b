"""Families of processes end together, and signals are deferred until then."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

from simulation import processes
from tests.support.processes import await_text

IN_PROC = pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")


def python_child(tmp_path: Path, code: str, *, kept: bool = True) -> processes.Child:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return processes.start(
        "child", str(tmp_path), command, tmp_path / "log", tmp_path, dict(os.environ), with_parent=kept
    )


def command_lines() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@IN_PROC
def test_end_reaches_a_deaf_grandchild_that_left_the_group(tmp_path):
    child = python_child(
        tmp_path,
        """
        import subprocess, sys
        deaf = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
        subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
        """,
        kept=False,
    )
    await_text(child.log, "deaf")
    assert child.process.wait() == 0
    assert len(processes.running([child])) == 1
    assert processes.end([child], 0.3) == set()
    assert processes.running([child]) == set()


# The memory of /proc/self/environ (proc(5), fields 50 and 51 of stat) is zeroed. A long process title does this too.
BARE = """
import ctypes, time
start, end = map(int, open('/proc/self/stat').read().rpartition(')')[2].split()[47:49])
ctypes.memset(start, 0, end - start)
print('bare', flush=True)
time.sleep(99)
"""


@IN_PROC
def test_a_keeper_finds_what_wrote_its_title_over_its_environment(tmp_path):
    (tmp_path / "bare.py").write_text(BARE)
    bare = f"import subprocess as s, sys; s.Popen([sys.executable, {str(tmp_path / 'bare.py')!r}])"
    child = python_child(tmp_path, f"{bare}; import time; time.sleep(99)")
    await_text(child.log, "bare")
    assert len(processes.running([child])) == 3
    assert processes.end([child], 20.0) == set()
    assert child.process.returncode == 128 + signal.SIGTERM
    child = python_child(tmp_path, f"{bare}; import time; time.sleep(0.5)")
    await_text(child.log, "bare")
    assert child.process.wait(20) == 0
    assert str(tmp_path / "bare.py") not in " ".join(command_lines())


@IN_PROC
def test_a_keeper_kills_what_does_not_listen(tmp_path):
    deaf = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
    child = python_child(tmp_path, deaf)
    await_text(child.log, "deaf")
    assert processes.end([child], 0.3) == set()
    assert child.process.returncode == 128 + signal.SIGKILL


PARENT = """
import os, signal, sys
from pathlib import Path
from simulation import processes
stray = "import subprocess as s, sys; s.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])"
command = [sys.executable, "-c", f"{stray}; import time; print('ready', flush=True); time.sleep(99)"]
place = Path(sys.argv[1])
child = processes.start("child", sys.argv[1], command, place / "log", place, dict(os.environ), with_parent=True)
while "ready" not in child.log.read_text():
    pass
print(len(processes.running([child])), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@IN_PROC
def test_a_kept_family_ends_with_a_parent_that_is_killed(tmp_path):
    done = subprocess.run([sys.executable, "-c", PARENT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "3\n"), done.stderr
    deadline = time.monotonic() + 20
    while left := processes._members(set(), {f"FEDSEL_PROCESS={tmp_path}".encode()}):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_a_keeper_passes_the_exit_code_on(tmp_path):
    child = python_child(tmp_path, "print('done'); raise SystemExit(7)")
    assert child.process.wait(60) == 7
    assert child.log.read_text() == "done\n"
    assert processes.end([child], 1.0) == set()


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
