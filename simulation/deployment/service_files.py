"""Service files for a machine's folder: a systemd unit, or a compose file."""

import json
import os
import shlex
import sys
from pathlib import Path

from fedsel_app.config.plugins import PACKAGES
from simulation.deployment.app_folder import copy_of
from simulation.federation.machine import Machine


def systemd_unit(folder: Path, machine: Machine) -> str:
    """Unit that runs `fedsel start FOLDER` as this user once the network is up, and restarts it after a failure."""
    command = shlex.join([str(Path(sys.executable).parent / "fedsel"), "start", str(folder)])
    # systemd expands a single % everywhere, and a single $ in a command.
    command, written = (text.replace("%", "%%") for text in (command.replace("$", "$$"), str(folder)))
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
ReadWritePaths="{written}"
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""


def compose_file(folder: Path, machine: Machine) -> str:
    """Compose file with a service that runs `fedsel start FOLDER` as this user, in an image of this fedsel."""
    mounts = [_mount(folder, Path("/federation"))]
    if data := machine.settings.get("data-path"):
        mounts.append(_mount(Path(str(data)), Path(str(data)), read_only=True))
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
        COPY pyproject.toml README.md LICENSE /fedsel/
{packages}        RUN pip install --no-cache-dir -e /fedsel 'flwr[simulation]=={machine.flower}.*'
    command: fedsel start /federation
    user: "{os.getuid()}:{os.getgid()}"
    restart: on-failure
    stop_grace_period: 30s
{"    ports:" + chr(10) + published if ports else ""}    volumes:
{"".join(mounts)}"""


def _mount(source: Path, target: Path, *, read_only: bool = False) -> str:
    lines = ["- type: bind", f"  source: {_quoted(source)}", f"  target: {_quoted(target)}"]
    return "".join(f"      {line}\n" for line in [*lines, *(["  read_only: true"] if read_only else [])])


def _quoted(path: Path) -> str:
    """Path as a quoted YAML string, in JSON's form. Dollar signs are doubled, because Compose expands a single one."""
    return json.dumps(str(path).replace("$", "$$"), ensure_ascii=False)
