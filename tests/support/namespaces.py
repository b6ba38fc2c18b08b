"""Machines as network namespaces: a bridge joins them, `tc` shapes their links, and each has a user and a home.

A link is two TAP devices with a thread between them, which delays what the machine sends: not every kernel has `netem`.
"""

import fcntl
import os
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

BRIDGE, NETWORK, GATEWAY = "fedselbr", "10.213.7", 254
FIRST_USER = 61230
"""Number of the first machine's user; no such user needs to exist."""
TUN, TUNSETIFF, TAP_WITHOUT_HEADER = Path("/dev/net/tun"), 0x400454CA, 0x1002
FRAME_BYTES = 1 << 16


def refused() -> str:
    """Reason why this system has no namespaces for a test; empty if it has them."""
    if os.geteuid():
        return "network namespaces need root"
    for tool in ("ip", "tc", "setpriv"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    if not TUN.exists():
        return f"there is no {TUN} here"
    made = subprocess.run(["ip", "netns", "add", "fedsel-try"], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", "fedsel-try"], capture_output=True, check=False)
    return f"this system allows no namespaces ({made.stderr.strip()})" if made.returncode else ""


@dataclass
class NamespaceMachine:
    """A machine: a namespace with one address, a user, and a home that only this user can open."""

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
        """Command line that executes `words` on the machine, as its user."""
        user = f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"
        return ["ip", "netns", "exec", self.space, *with_python(), "setpriv", *user, *words]

    def environment(self, **others: str) -> dict[str, str]:
        """Environment of the machine's programs."""
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        return {**kept, "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **others}

    def take(self, folder: Path) -> Path:
        """Copy a folder to the machine's home, so that only its user can open it."""
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

    def shape(self, bits_per_s: float) -> None:
        """Limit the rate of the link in both directions."""
        run("ip", "netns", "exec", self.space, *token_bucket("eth0", bits_per_s))
        run(*token_bucket(self.link, bits_per_s))

    def cut(self, *, cut: bool) -> None:
        """Cut the link, or restore it."""
        run("ip", "link", "set", self.link, "down" if cut else "up")

    def pids(self) -> list[int]:
        """Processes in the namespace."""
        found = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]

    def kill(self) -> None:
        """Kill every process in the namespace."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for process in self.processes:
            process.wait()
        self.processes.clear()


def with_python() -> list[str]:
    """Words before a command line with which every user can read Python; none if every user can read it anyway.

    Python may be in a folder that only its owner can open, such as the home of root. The machine has its own mounts.
    With these words, it sees only Python in that folder.
    """
    python = Path(sys.base_prefix).resolve()
    closed = next((folder for folder in reversed(python.parents) if not folder.stat().st_mode & stat.S_IXOTH), None)
    if closed is None:
        return []
    mount = 'mount -B "$1" /mnt && mount -t tmpfs -o mode=755 none "$2" && mkdir -p "$1" && mount -B /mnt "$1"'
    return ["sh", "-c", f'{mount} && shift 2 && exec "$@"', "sh", str(python), str(closed)]


def token_bucket(device: str, bits_per_s: float) -> list[str]:
    """Command line that limits what a device sends to a rate."""
    rate = f"{bits_per_s:.0f}bit"
    return ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "4kb", "limit", "1mb"]


def open_tap(name: str) -> int:
    """Make a TAP device and return its file, from which frames are read and to which they are written.

    Closing the file removes the device.
    """
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), TAP_WITHOUT_HEADER))
    return device


def carry(machine: int, bridge: int, delay_s: float, ended: threading.Event) -> None:
    """Move frames between two devices until `ended`; those of the machine arrive `delay_s` later."""
    on_the_way: deque[tuple[float, bytes]] = deque()
    while not ended.is_set():
        wait_s = max(on_the_way[0][0] - time.monotonic(), 0.0) if on_the_way else 0.1
        for device in select.select([machine, bridge], [], [], wait_s)[0]:
            # A device that is down accepts no frames; they are lost, as on a cut link.
            with suppress(OSError):
                frame = os.read(device, FRAME_BYTES)
                if device == machine:
                    on_the_way.append((time.monotonic() + delay_s, frame))
                else:
                    os.write(machine, frame)
        while on_the_way and on_the_way[0][0] <= time.monotonic():
            with suppress(OSError):
                os.write(bridge, on_the_way.popleft()[1])


@contextmanager
def machines(names: Sequence[str], folder: Path, delay_s: float) -> Iterator[dict[str, NamespaceMachine]]:
    """Machines by name, which a bridge with its own address connects. They are removed at the end of the block.

    What all but the first machine send arrives at the bridge `delay_s` later.
    """
    made = {name: NamespaceMachine(name, 1 + place, folder / name) for place, name in enumerate(names)}
    clear([*made.values()])
    with ExitStack() as links:
        try:
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "addr", "add", f"{NETWORK}.{GATEWAY}/24", "dev", BRIDGE)
            run("ip", "link", "set", BRIDGE, "up")
            for place, machine in enumerate(made.values()):
                links.enter_context(joined(machine, delay_s if place else 0.0))
            yield made
        finally:
            for machine in made.values():
                machine.kill()
            clear([*made.values()])


@contextmanager
def joined(machine: NamespaceMachine, delay_s: float) -> Iterator[None]:
    """Make a machine and its link to the bridge, for the block."""
    inside, own = ("ip", "-n", machine.space), f"{machine.link}own"
    run("ip", "netns", "add", machine.space)
    devices = [open_tap(own), open_tap(machine.link)]
    run("ip", "link", "set", own, "netns", machine.space, "name", "eth0")
    run("ip", "link", "set", machine.link, "master", BRIDGE)
    run("ip", "link", "set", machine.link, "up")
    run(*inside, "addr", "add", f"{machine.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        run(*inside, "link", "set", device, "up")
    machine.home.mkdir(mode=0o700, parents=True)
    os.chown(machine.home, machine.user, machine.user)
    ended = threading.Event()
    carrier = threading.Thread(target=carry, args=(*devices, delay_s, ended), daemon=True)
    carrier.start()
    try:
        yield
    finally:
        ended.set()
        carrier.join()
        for file in devices:
            os.close(file)


def clear(made: Sequence[NamespaceMachine]) -> None:
    """Remove what an earlier test left."""
    for machine in made:
        subprocess.run(["ip", "netns", "del", machine.space], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def run(*words: str) -> None:
    """Execute a command. Raises AssertionError with its words if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{' '.join(words)}: {done.stderr}"
