"""Service files of a machine, read in the same way as systemd and compose read them."""

import shlex
from pathlib import Path

import pytest
import yaml

from simulation.operations.guard.transport import FLEET_OVER_GRPC
from simulation.operations.machines.folders import FederationFolders
from simulation.operations.machines.machine import read_machine
from simulation.workbench.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "all of $100%"
    words = ["--server", "server.example", "--clients", "2", "--port", "9300"]
    assert main(["provision", *words, "--out", str(folder)]) == 0
    return FederationFolders(folder)


def printed(capsys, folder, *words):
    assert main(["start", str(folder), *words]) == 0
    return capsys.readouterr().out


def test_a_client_sees_its_folder_its_data_and_its_states_elsewhere(made, tmp_path, capsys, monkeypatch):
    """Without its states, a client lost its residuals with its container. Compose reads $$ as one dollar sign."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / 'mine of $ "1": #2.npz'
    data.write_bytes(b"")
    words = ["--data", str(data), "--set", "state-dir=states"]
    [(name, service)] = yaml.safe_load(printed(capsys, made.client(1), "--compose", *words))["services"].items()
    assert name == "client-1"
    assert service["command"] == ["fedsel", "start", "/federation"]
    written, states = str(tmp_path / 'mine of $$ "1": #2.npz'), str(tmp_path / "states")
    assert service["volumes"] == [
        {"type": "bind", "source": str(made.client(1)).replace("$", "$$"), "target": "/federation"},
        {"type": "bind", "source": written, "target": written, "read_only": True},
        {"type": "bind", "source": states, "target": states},
    ]
    assert "ports" not in service
    settings = {"data-path": str(data), "data": "npz", "state-dir": states}
    assert read_machine(made.client(1), "client").settings == settings
    unit = printed(capsys, made.client(1), "--systemd")
    [paths] = [line.removeprefix("ReadWritePaths=") for line in unit.splitlines() if line.startswith("ReadWrite")]
    assert shlex.split(paths)[1:] == [states]


def test_a_servers_image_holds_the_packages_and_no_other_folder_and_publishes_its_ports(made, capsys):
    service = yaml.safe_load(printed(capsys, made.server, "--compose"))["services"]["server"]
    build = service["build"]
    copied = [line.split()[1:-1] for line in build["dockerfile_inline"].splitlines() if line.startswith("COPY ")]
    packages = [["fedsel_app"], ["strategies"], ["clients"], ["simulation"]]
    assert copied == [["pyproject.toml", "README.md", "LICENSE", "fedsel.py"], *packages]
    assert all((Path(build["context"]) / name).exists() for names in copied for name in names)
    assert service["ports"] == (["9300:9300", "9301:9301"] if FLEET_OVER_GRPC else ["9300:9300"])
