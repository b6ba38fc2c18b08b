"""SuperExec that passes a task's token in a file: ``python -m simulation.operations.guard.superexec SECRET ...``.

SECRET is a file in a folder that only this user can read. The other arguments are those of `flower-superexec`. Flower's
SuperExec puts the token into a command line, which every user of the machine can read; with the token anybody can act
as the ServerApp. This file replaces `subprocess_executor.subprocess`. A token file by default would replace it.

At its end, it interrupts the ServerApps. Each sees by itself that it has ended, but in a thread, whose signal does not
wake a main thread that waits for other threads: they may try for ever to send something to the SuperLink that is gone.
The ServerApp would hold its run folder, so that the run could not be resumed.
"""

import logging
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

STARTER_HOOK = "subprocess"


def start_hiding(start: Callable[..., Any], folder: Path, command: Sequence[str], **options: Any) -> Any:
    """Start a command, with its token in a new file of `folder`."""
    at = command.index("--token")
    file = folder / f"token-{secrets.token_hex(8)}"
    file.touch(mode=0o600)
    file.write_text(command[at + 1], encoding="utf-8")
    return start([*command[:at], "--token-file", str(file), *command[at + 2 :]], **options)


def main() -> None:
    """Run the SuperExec until it is ended."""
    from flwr.supercore.cli import flower_superexec
    from flwr.supercore.superexec.executor import subprocess_executor

    secret = Path(sys.argv.pop(1))
    sys.argv += ["--superexec-auth-secret-file", str(secret)]
    apps = list[subprocess.Popen[bytes]]()

    def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        apps[:] = [app for app in apps if app.poll() is None]
        apps.append(start_hiding(subprocess.Popen, secret.parent, command, **options))
        return apps[-1]

    setattr(subprocess_executor, STARTER_HOOK, SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL))
    logging.getLogger("flwr").setLevel(logging.WARNING)
    try:
        flower_superexec()
    finally:
        for app in apps:
            app.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
