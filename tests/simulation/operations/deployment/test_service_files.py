"""Service files of a machine, read in the same way as systemd and compose read them."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from simulation.operations.deployment.service_files import systemd_unit
from simulation.operations.guard.transport import FLEET_OVER_GRPC
from simulation.operations.machines.folders import FederationFolders
from simulation.operations.machines.machine import read_machine
from simulation.workbench.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FederationFolders:
    folder = tmp_path_factory.mktemp("made") / "all of $100%"
    words = ["--server", "server.example", "--clients", "2", "--port", "9300"]
    assert main(["provision", *words, "--out", str(folder)]) == 0
    return FederationFolders(folder)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["start", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("folder", "data", "private"),
    [
        ("/srv/client", "/srv/own.csv", "true"),
        ("/srv/client", "/tmp/own.csv", "false"),
        ("/var/tmp/client", "/srv/own.csv", "false"),
    ],
)
def test_a_unit_sees_its_folder_and_its_data_in_the_folder_for_temporary_files(
    made, monkeypatch, folder, data, private
):
    """With PrivateTmp the client did not find its data."""
    monkeypatch.setattr("sys.executable", "/opt/fedsel/bin/python")
    client = replace(read_machine(made.client(0), "client"), settings={"data-path": data})
    assert f"\nPrivateTmp={private}\n" in systemd_unit(Path(folder), client)


def test_a_compose_file_of_a_client_mounts_its_folder_and_its_data(made, tmp_path, capsys):
    data = tmp_path / 'mine of $ "1": #2.npz'
    data.write_bytes(b"")
    said = printed(capsys, str(made.client(1)), "--compose", "--data", str(data))
    [(name, service)] = yaml.safe_load(said)["services"].items()
    assert name == "client-1"
    assert service["command"] == ["fedsel", "start", "/federation"]
    # Compose reads $$ as one dollar sign.
    written = str(tmp_path / 'mine of $$ "1": #2.npz')
    assert service["volumes"] == [
        {"type": "bind", "source": str(made.client(1)).replace("$", "$$"), "target": "/federation"},
        {"type": "bind", "source": written, "target": written, "read_only": True},
    ]
    assert "ports" not in service
    assert read_machine(made.client(1), "client").settings == {"data-path": str(data), "data": "npz"}


def test_a_client_with_states_elsewhere_may_write_there(made, tmp_path, monkeypatch, capsys):
    """In its service, the client could not write its residuals, or lost them with its container."""
    monkeypatch.chdir(tmp_path)
    words = [str(made.client(1)), "--set", "state-dir=states"]
    unit = printed(capsys, *words, "--systemd")
    [paths] = [line.removeprefix("ReadWritePaths=") for line in unit.splitlines() if line.startswith("ReadWrite")]
    assert shlex.split(paths)[1:] == [str(tmp_path / "states")]
    [service] = yaml.safe_load(printed(capsys, *words, "--compose"))["services"].values()
    states = str(tmp_path / "states")
    assert service["volumes"][-1] == {"type": "bind", "source": states, "target": states}
    assert read_machine(made.client(1), "client").settings["state-dir"] == states


def test_the_image_of_a_compose_file_holds_the_packages_and_no_other_folder_of_the_checkout(made, capsys):
    build = yaml.safe_load(printed(capsys, str(made.client(0)), "--compose"))["services"]["client-0"]["build"]
    copied = [line.split()[1:-1] for line in build["dockerfile_inline"].splitlines() if line.startswith("COPY ")]
    packages = [["fedsel_app"], ["strategies"], ["clients"], ["simulation"]]
    assert copied == [["pyproject.toml", "README.md", "LICENSE", "fedsel.py"], *packages]
    assert all((Path(build["context"]) / name).exists() for names in copied for name in names)


def test_a_compose_file_of_the_server_publishes_its_ports(made, capsys):
    service = yaml.safe_load(printed(capsys, str(made.server), "--compose"))["services"]["server"]
    assert service["ports"] == (["9300:9300", "9301:9301"] if FLEET_OVER_GRPC else ["9300:9300"])
