"""The starter and the families of processes, which end together; signals are deferred until then."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.engines import processes
from simulation.engines.starter import Starter
from simulation.engines.this_process import exit_on_signals, signals_deferred
from tests.support.processes import await_text, looks_in_proc, mentioning, until


@pytest.fixture
def starter() -> Iterator[Starter]:
    with Starter() as started:
        yield started


def python_child(starter: Starter, tmp_path: Path, code: str) -> processes.Child:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return starter.start("child", str(tmp_path), command, tmp_path / "log", tmp_path, dict(os.environ))


def code_of(child: processes.Child, timeout_s: float = 60.0) -> int:
    """Exit code of a process, once it has ended."""
    until(lambda: child.poll() is not None, timeout_s)
    return child.poll()


DEAF = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
DEAF_GRANDCHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}], start_new_session=True)"


@looks_in_proc
def test_end_reaches_a_deaf_grandchild_that_left_the_group(starter, tmp_path):
    child = python_child(starter, tmp_path, f"{DEAF_GRANDCHILD}; import time; time.sleep(99)")
    await_text(child.log, "deaf")
    assert len(processes.running([child])) == 2
    assert processes.end([child], 5.0) == set()
    assert processes.running([child]) == set()
    assert not mentioning(tmp_path)


@looks_in_proc
def test_a_process_that_ends_takes_what_left_its_group_along(starter, tmp_path):
    child = python_child(starter, tmp_path, f"{DEAF_GRANDCHILD}; import time; time.sleep(0.5)")
    await_text(child.log, "deaf")
    assert code_of(child) == 0
    assert not mentioning(tmp_path)


ASKED = """
import os, sys
prepared = sys.modules.get("prepared")
print(os.environ["WHO"], os.getcwd(), sys.argv[1:], prepared and prepared.NUMBERS, flush=True)
print("Asked.", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""

# The memory of /proc/self/environ (proc(5), fields 50 and 51 of stat) is zeroed. A long process title does this too.
BARE = """
import ctypes, time
start, end = map(int, open('/proc/self/stat').read().rpartition(')')[2].split()[47:49])
ctypes.memset(start, 0, end - start)
print('bare', flush=True)
time.sleep(99)
"""


@looks_in_proc
def test_what_wrote_its_title_over_its_environment_is_found(starter, tmp_path):
    (tmp_path / "bare.py").write_text(BARE)
    bare = f"import subprocess as s, sys; s.Popen([sys.executable, {str(tmp_path / 'bare.py')!r}])"
    child = python_child(starter, tmp_path, f"{bare}; import time; time.sleep(99)")
    await_text(child.log, "bare")
    assert len(processes.running([child])) == 2
    assert processes.end([child], 20.0) == set()
    assert child.poll() == 128 + signal.SIGTERM
    assert not mentioning(tmp_path / "bare.py")


PARENT = """
import os, signal, sys
from pathlib import Path
from simulation.engines import processes
from simulation.engines import starter as starter_module
from simulation.engines.starter import Starter
stray = "import subprocess as s, sys; s.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])"
command = [sys.executable, "-c", f"{stray}; import time; print('ready', flush=True); time.sleep(99)"]
place = Path(sys.argv[1])
child = Starter().start("child", sys.argv[1], command, place / "log", place, dict(os.environ))
while "ready" not in child.log.read_text():
    pass
print(len(processes.running([child])), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@looks_in_proc
def test_a_family_ends_with_a_parent_that_is_killed(tmp_path):
    done = subprocess.run([sys.executable, "-c", PARENT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "2\n"), done.stderr
    until(lambda: not mentioning(tmp_path), 20)


@looks_in_proc
def test_a_process_ends_with_a_starter_that_is_killed(starter, tmp_path):
    child = python_child(starter, tmp_path, "import os, time; print(os.getppid(), flush=True); time.sleep(99)")
    await_text(child.log, "\n")
    os.kill(int(child.log.read_text()), signal.SIGKILL)
    assert code_of(child) == 128 + signal.SIGKILL
    assert processes.end([child], 5.0) == set()
    assert not mentioning(tmp_path)
    with pytest.raises(ConnectionError, match="was ended by SIGKILL"):
        python_child(starter, tmp_path, "")


@pytest.mark.parametrize("warm", [False, True])
def test_the_exit_code_the_folder_the_environment_and_the_output_are_the_commands(tmp_path, monkeypatch, warm):
    (tmp_path / "asked.py").write_text(ASKED)
    (tmp_path / "prepared.py").write_text("NUMBERS = []\ndef prepare(number): NUMBERS.append(number)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [sys.executable, "-P", "-m", "asked", "7"]
    with Starter("prepared" if warm else "") as starter:
        starter.prepare(60.0, number=3)
        variables = os.environ | {"WHO": "you"}
        child = starter.start("child", str(tmp_path), command, tmp_path / "log", tmp_path, variables)
        assert code_of(child) == 7
    assert child.log.read_text() == f"you {tmp_path} ['7'] {[3] if warm else None}\nAsked.\n"


def test_signals_wait_for_the_end_of_the_block():
    done = []

    def interrupted() -> None:
        with signals_deferred():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done


def test_sigterm_unwinds_the_block_and_its_handler_is_put_back():
    with pytest.raises(SystemExit) as ended, exit_on_signals():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
