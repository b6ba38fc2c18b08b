"""Machines as network namespaces: a bridge joins them, `tc` shapes their links, and each has a user and a home."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BRIDGE, NETWORK, GATEWAY = "fedselbr", "10.213.7", 254
FIRST_USER = 61230
"""Number of the first machine's user; no such user needs to exist."""


def refused() -> str:
    """Why this system has no namespaces for a test; empty where it has them."""
    if os.geteuid():
        return "network namespaces need root"
    for tool in ("ip", "tc", "setpriv"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    made = subprocess.run(["ip", "netns", "add", "fedsel-try"], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", "fedsel-try"], capture_output=True, check=False)
    return f"this system allows no namespaces ({made.stderr.strip()})" if made.returncode else ""


@dataclass
class NamespaceMachine:
    """A machine: a namespace with one address, a user, and a home that this user alone enters."""

    name: str
    number: int
    home: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def space(self) -> str:
        """Name of its namespace."""
        return f"fedsel-{self.name}"

    @property
    def link(self) -> str:
        """Name of the bridge's end of its link."""
        return f"fs{self.number}"

    @property
    def address(self) -> str:
        """Its address."""
        return f"{NETWORK}.{self.number}"

    @property
    def user(self) -> int:
        """Number of its user."""
        return FIRST_USER + self.number

    def command(self, *words: str) -> list[str]:
        """Command line that carries out `words` on the machine, as its user."""
        user = f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"
        return ["ip", "netns", "exec", self.space, "setpriv", *user, *words]

    def environment(self, **others: str) -> dict[str, str]:
        """Environment of the machine's programs."""
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        return {**kept, "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **others}

    def take(self, folder: Path) -> Path:
        """Copy a folder to the machine's home, for its user alone."""
        copied = self.home / folder.name
        shutil.copytree(folder, copied)
        for path in (copied, *copied.rglob("*")):
            os.chown(path, self.user, self.user)
        return copied

    def start(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a program in the home; its output goes to `log`."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.command(*words),
                cwd=self.home,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def shape(self, rate: str, delay: str) -> None:
        """Limit the link to `rate` both ways, and delay what the machine sends by `delay`."""
        run("ip", "netns", "exec", self.space, *netem("replace", "eth0", "delay", delay, "rate", rate))
        run(*netem("replace", self.link, "rate", rate))

    def cut(self, *, cut: bool) -> None:
        """Cut the link, or mend it."""
        run("ip", "link", "set", self.link, "down" if cut else "up")

    def kill(self) -> None:
        """Kill every process in the namespace."""
        pids = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True, check=False).stdout
        for pid in pids.split():
            os.kill(int(pid), signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.processes.clear()


def netem(verb: str, device: str, *options: str) -> list[str]:
    """Command line that puts a link emulator on a device."""
    return ["tc", "qdisc", verb, "dev", device, "root", "netem", "limit", "20000", *options]


@contextmanager
def machines(names: Sequence[str], folder: Path) -> Iterator[dict[str, NamespaceMachine]]:
    """Machines by their names, joined by a bridge that has an address of its own; all gone when the block is left."""
    made = {name: NamespaceMachine(name, 1 + place, folder / name) for place, name in enumerate(names)}
    clear(made.values())
    try:
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.{GATEWAY}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for machine in made.values():
            join(machine)
        yield made
    finally:
        for machine in made.values():
            machine.kill()
        clear(made.values())


def join(machine: NamespaceMachine) -> None:
    """Make a machine and its link to the bridge."""
    inside = ("ip", "-n", machine.space)
    run("ip", "netns", "add", machine.space)
    run("ip", "link", "add", machine.link, "type", "veth", "peer", "name", "eth0", "netns", machine.space)
    run("ip", "link", "set", machine.link, "master", BRIDGE)
    run("ip", "link", "set", machine.link, "up")
    run(*inside, "addr", "add", f"{machine.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        run(*inside, "link", "set", device, "up")
    machine.home.mkdir(mode=0o700, parents=True)
    os.chown(machine.home, machine.user, machine.user)


def clear(made: Sequence[NamespaceMachine]) -> None:
    """Remove what an earlier test has left."""
    for machine in made:
        subprocess.run(["ip", "netns", "del", machine.space], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def run(*words: str) -> None:
    """Carry out a command; an AssertionError with its words if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{' '.join(words)}: {done.stderr}"
