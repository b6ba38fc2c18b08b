"""SuperExec that hands a task's token over in a file: ``python -m simulation.flower_internals.superexec SECRET ...``.

SECRET is a file in a folder of this user's alone; the other arguments are those of `flower-superexec`. Flower's own
writes the token into the command line of the process that it starts, which every user of the machine can read; and who
has the token of a ServerApp is that ServerApp to the SuperLink.

Private of Flower is `subprocess_executor.subprocess`, of which it uses `Popen`; a token file by default would replace
this.
"""

import logging
import secrets
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

STARTER_HOOK = "subprocess"


def start_hiding(start: Callable[..., Any], folder: Path, command: Sequence[str], **options: Any) -> Any:
    """Start a command with the token that stands in it in a new file of `folder` instead."""
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
    popen = partial(start_hiding, subprocess.Popen, secret.parent)
    setattr(subprocess_executor, STARTER_HOOK, SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL))
    logging.getLogger("flwr").setLevel(logging.WARNING)
    flower_superexec()


if __name__ == "__main__":
    main()
