"""Service files for a machine's folder: a systemd unit, or a compose file."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import PACKAGES
from simulation.operations.deployment.app_folder import copy_of
from simulation.operations.machines.machine import Machine


def systemd_unit(folder: Path, machine: Machine, options: Sequence[str] = ()) -> str:
    """Unit that runs `fedsel start FOLDER` as this user once the network is up, and restarts it after a failure.

    `options` follow the folder. Raises ConfigError if a path has a character that cannot be printed.
    """
    words = [str(Path(sys.executable).parent / "fedsel"), "start", str(folder), *options]
    # systemd expands a single $ in a command.
    command = " ".join(_unit_word(word.replace("$", "$$")) for word in words)
    written = " ".join(_unit_word(str(path)) for path in (folder, *_outside(machine, "state-dir")))
    return f"""[Unit]
Description=fedsel {machine.name} of the federation at {machine.server}
Wants=network-online.target
After=network-online.target

[Service]
User={os.getuid()}
Group={os.getgid()}
ExecStart={command}
Restart=on-failure
RestartSec=10
KillSignal=SIGTERM
NoNewPrivileges=true
ProtectSystem=strict
ReadWritePaths={written}

[Install]
WantedBy=multi-user.target
"""


def compose_file(folder: Path, machine: Machine, options: Sequence[str] = ()) -> str:
    """Compose file with a service that runs `fedsel start FOLDER` as this user, in an image of this fedsel.

    `options` follow the folder. Raises ConfigError if a path has a character that cannot be printed.
    """
    mounts = [_mount(folder, Path("/federation"))]
    mounts += [_mount(data, data, read_only=True) for data in _outside(machine, "data-path")]
    mounts += [_mount(states, states) for states in _outside(machine, "state-dir")]
    ports = sorted({machine.port, machine.control_port}) if machine.role == "server" else []
    published = "".join(f'      - "{port}:{port}"\n' for port in ports)
    # Not the whole checkout: the folders of other machines may lie there.
    packages = "".join(f"        COPY {package} /fedsel/{package}\n" for package in PACKAGES)
    return f"""services:
  {machine.name}:
    build:
      context: {_quoted(copy_of(PACKAGES))}
      dockerfile_inline: |
        FROM python:3.11-slim
        COPY pyproject.toml README.md LICENSE fedsel.py /fedsel/
{packages}        RUN pip install --no-cache-dir -e /fedsel 'flwr[simulation]=={machine.flower}.*'
    command: {json.dumps(["fedsel", "start", "/federation", *options])}
    user: "{os.getuid()}:{os.getgid()}"
    restart: on-failure
    stop_grace_period: 30s
{"    ports:" + chr(10) + published if ports else ""}    volumes:
{"".join(mounts)}"""


def _outside(machine: Machine, key: str) -> list[Path]:
    """The path of a client's own setting. A relative path is in its folder."""
    path = Path(str(machine.settings.get(key, "")))
    return [path] if path.is_absolute() else []


def _mount(source: Path, target: Path, *, read_only: bool = False) -> str:
    lines = ["- type: bind", f"  source: {_quoted(source)}", f"  target: {_quoted(target)}"]
    return "".join(f"      {line}\n" for line in [*lines, *(["  read_only: true"] if read_only else [])])


def _quoted(path: Path) -> str:
    """Path as a quoted YAML string, in JSON's form. Dollar signs are doubled, because Compose expands a single one."""
    return json.dumps(_printable(str(path)).replace("$", "$$"), ensure_ascii=False)


def _unit_word(text: str) -> str:
    """Word of a systemd unit in quotes. Percent signs are doubled, because systemd expands a single one."""
    escaped = _printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ConfigError(f"Move {text!r} to a path of printable characters: service files have no others.")
    return text
