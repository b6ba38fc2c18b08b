"""Faults and kills at random places: every program, started again until it ends, has the bits of an undisturbed one.

``python -m tests.faults`` carries out small programs (``fedsel run``, also with a server that does not wait, and
``compare``) with one fault each: errors of the disk (EIO, ENOSPC) and torn writes at any call that changes a file of
the program's folder; a process that is killed before or after such a call; an exception that no code expects, in any
function. Then it kills whole programs at random moments, some of them twice. It prints a line for each kind of fault,
and each program that ended otherwise.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from simulation.workbench.comparison.run_processes import FEDSEL
from tests.faults import sitecustomize
from tests.support.processes import mentioning, until
from tests.support.rounds import assert_same

SMALL = ("--clients", "4", "--cohort", "2", "--rounds", "6", "--set", "local-steps=2", "--set", "checkpoint-every=2")
INLINE = (*SMALL, "--engine", "inline")
MOST_STARTS = 8
STALLED_S = 600.0
LEFT_S = 120.0
"""Timeouts in seconds of a program, and of the processes that a killed one leaves: others may use the machine too."""
DISK = ("EIO", "ENOSPC", "torn", "kill-before", "kill-after")
KINDS = (*DISK, "exception")


@dataclass(frozen=True)
class Program:
    """A command of `fedsel` without its folder, and the faults that it must survive.

    Attributes
    ----------
    resumed : the command that continues a run takes its folder as `--resume`
    warm : it is carried out in a fork of this process, which has imported everything
    """

    command: tuple[str, ...]
    resumed: bool = True
    warm: bool = True

    def start(self, out: Path) -> list[str]:
        """Command that begins or continues it in `out`."""
        if self.resumed and (out / "config.json").exists():
            return [self.command[0], "--resume", str(out)]
        return [*self.command, "--out", str(out)]

    def finished(self, out: Path, code: int) -> bool:
        """True if nothing is left to do in `out` after an end with this exit code."""
        return (out / "summary.json").exists() if self.resumed else code == 0


COMPARED = ("--strategies", "random,oort", "--seeds", "1", "--jobs", "1", *INLINE)
PROGRAMS = {
    "run": Program(("run", *INLINE, "--set", "holdout-fraction=0.2", "--set", "client-eval=true")),
    "asynchronous": Program(
        ("run", "--strategy", "random", *INLINE, "--set", "waiting=asynchronous", "--set", "server-optimizer=mean")
    ),
    "compare": Program(("compare", *COMPARED), resumed=False, warm=False),
}


class Laboratory:
    """Carries out one program in folders below `root`."""

    def __init__(self, name: str, root: Path) -> None:
        root.mkdir()
        self.program, self._root, self._reference, self._tries = PROGRAMS[name], root, root / "undisturbed", 0
        self._places: dict[str, int] = {}
        begun = time.monotonic()
        code, log = self._once(self._reference, None)
        self.seconds = time.monotonic() - begun
        assert self.program.finished(self._reference, code), log

    def places(self, kind: str) -> int:
        """Number of places of this kind of fault in an undisturbed program."""
        family = DISK[0] if kind in DISK else kind
        if family in self._places:
            return self._places[family]
        out = self._root / f"counted-{kind}"
        plan = self._plan(out, 0, kind)
        self._once(out, plan)
        shutil.rmtree(out)
        counter = Path(str(plan["counter"]))
        self._places[family] = counter.stat().st_size if counter.exists() else 0
        return self._places[family]

    def fault(self, kind: str, place: int) -> str:
        """Carry out the program with a fault, and again until it is done; what is wrong then, or nothing."""
        out = self._new()
        code, log = self._once(out, self._plan(out, place, kind))
        return self._finish(out, code, log)

    def kill(self, moments_s: Sequence[float]) -> str:
        """Kill the program after these seconds, each time that it is started; what is wrong at the end, or nothing."""
        out, code, log = self._new(), 1, ""
        for moment_s in moments_s:
            code, log = self._once(out, None, moment_s)
            if self.program.finished(out, code):
                break
        return self._finish(out, code, log)

    def _new(self) -> Path:
        self._tries += 1
        return self._root / f"{self._tries}"

    def _plan(self, out: Path, number: int, kind: str) -> dict[str, object]:
        self._tries += 1
        counter = str(self._root / f"counter-{self._tries}")
        return {"folder": str(out), "counter": counter, "number": number, "kind": kind}

    def _finish(self, out: Path, code: int, log: str) -> str:
        logs, starts = [log], 0
        while not self.program.finished(out, code):
            if starts == MOST_STARTS:
                return f"not finished after {MOST_STARTS} starts: {' / '.join(line[-300:] for line in logs)}"
            code, log = self._once(out, None)
            logs.append(log)
            starts += 1
        if wrong := self._difference(out):
            return f"{wrong}: {' / '.join(line[-300:] for line in logs)}"
        shutil.rmtree(out)
        return ""

    def _difference(self, out: Path) -> str:
        runs = [found.relative_to(self._reference).parent for found in self._reference.rglob("summary.json")]
        for run in runs:
            try:
                assert_same(out / run, self._reference / run)
            except (AssertionError, OSError) as error:
                return f"{out / run} differs ({str(error)[:200]})"
        return ""

    def _once(self, out: Path, plan: dict[str, object] | None, killed_after_s: float = 0.0) -> tuple[int, str]:
        """Start the program once; its exit code, negative for a signal, and the end of what it said."""
        said = self._root / "said.log"
        command = self.program.start(out)
        with said.open("wb") as log:
            process = self._forked(command, plan, log.fileno()) if self.program.warm else self._run(command, plan, log)
            code = self._awaited(process, killed_after_s or STALLED_S, killed=bool(killed_after_s))
        until(lambda: not mentioning(out), LEFT_S)
        return code, said.read_text(errors="replace").strip()

    def _forked(self, command: list[str], plan: dict[str, object] | None, log: int) -> int:
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.setsid()
            from simulation.workbench.cli import main

            if plan is not None:
                sitecustomize.install(**plan)  # type: ignore[arg-type]
            code = main(command)
        except BaseException as error:  # noqa: BLE001 - also SystemExit and what is injected
            sys.setprofile(None)
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            sys.setprofile(None)
            sys.stdout.flush()
            os._exit(code)

    def _run(self, command: list[str], plan: dict[str, object] | None, log: object) -> int:
        environment = dict(os.environ)
        if plan is not None:
            given = Path(f"{plan['counter']}.json")
            given.write_text(json.dumps(plan))
            environment |= {"FAULT": str(given), "PYTHONPATH": str(Path(__file__).parent)}
        words = [*FEDSEL, *command]
        return subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True).pid  # type: ignore[call-overload,no-any-return]

    @staticmethod
    def _awaited(process: int, limit_s: float, *, killed: bool) -> int:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        assert killed, f"the program stood still for {limit_s} s"
        return code


def main(words: Sequence[str] | None = None) -> int:
    """Carry out all programs; 1 if one ended otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--programs", default=",".join(PROGRAMS), metavar="NAME,...")
    parser.add_argument("--faults", type=int, default=30, metavar="N", help="of each program")
    parser.add_argument("--kills", type=int, default=10, metavar="N", help="programs of each kind that are killed")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(words)
    import simulation.workbench.cli
    import simulation.workbench.preparation  # noqa: F401

    rng, wrong = random.Random(arguments.seed), []
    root = Path(tempfile.mkdtemp(prefix="faults-"))
    for name in arguments.programs.split(","):
        laboratory = Laboratory(name, root / name)
        chosen = Counter(KINDS[number % len(KINDS)] for number in range(arguments.faults))
        for kind, count in chosen.items():
            places = laboratory.places(kind)
            drawn = [rng.randint(1, places) for _ in range(count)]
            found = [(f"{kind} at place {place} of {places}", laboratory.fault(kind, place)) for place in drawn]
            wrong += _told(f"{name}: {count} times {kind}, of {places} places", name, found)
        killed = []
        for number in range(arguments.kills):
            moments = [rng.uniform(0.0, 1.1 * laboratory.seconds) for _ in range(1 + number % 2)]
            killed.append((f"killed after {moments}", laboratory.kill(moments)))
        wrong += _told(f"{name}: {len(killed)} programs killed, {laboratory.seconds:.1f} s each", name, killed)
    print(f"{len(wrong)} programs ended otherwise than undisturbed." if wrong else "All ended with the same bits.")
    if not wrong:
        shutil.rmtree(root)
    return bool(wrong)


def _told(title: str, name: str, found: Sequence[tuple[str, str]]) -> list[str]:
    wrong = [f"{name}, {what}: {sentence}" for what, sentence in found if sentence]
    print(f"{title}: {len(found) - len(wrong)} with the same bits", *wrong, sep="\n  ", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
