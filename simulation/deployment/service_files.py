"""Service files for a machine's folder: a systemd unit, or a compose file."""

import os
import shlex
import sys
from pathlib import Path

from simulation.deployment.app_folder import app_folder
from simulation.federation.machine import Machine


def systemd_unit(folder: Path, machine: Machine) -> str:
    """Unit that runs `fedsel start FOLDER` as this user once the network is up, and restarts it after a failure."""
    command = shlex.join([str(Path(sys.executable).parent / "fedsel"), "start", str(folder)])
    command, written = (text.replace("%", "%%") for text in (command, str(folder)))  # systemd expands single ones
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
    mounts = [f"{folder}:/federation"]
    if data := machine.settings.get("data-path"):
        mounts.append(f"{data}:{data}:ro")
    ports = sorted({machine.port, machine.control_port}) if machine.role == "server" else []
    published = "".join(f'      - "{port}:{port}"\n' for port in ports)
    return f"""services:
  {machine.name}:
    build:
      context: {app_folder()}
      dockerfile_inline: |
        FROM python:3.11-slim
        COPY . /fedsel
        RUN pip install --no-cache-dir -e /fedsel 'flwr[simulation]=={machine.flower}.*'
    command: fedsel start /federation
    user: "{os.getuid()}:{os.getgid()}"
    restart: on-failure
    stop_grace_period: 30s
{"    ports:" + chr(10) + published if ports else ""}    volumes:
{"".join(f'      - "{mount}"{chr(10)}' for mount in mounts)}"""
