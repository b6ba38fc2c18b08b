"""Start of a machine in its folder."""

import logging
import sys

import numpy as np
import pandas as pd
import pytest

from fedsel_app.config import ConfigError
from simulation.operations.deployment import start
from simulation.operations.deployment.start import HOME, _Plainly, describe_data, run_machine
from simulation.operations.guard import superlink
from simulation.operations.machines.folders import make_federation
from simulation.operations.machines.machine import read_machine, with_settings
from simulation.operations.machines.private_files import held_folder
from simulation.workbench.cli import main


def test_a_folder_that_is_at_work_is_not_started_twice(tmp_path):
    federation = make_federation(tmp_path / "federation", ["localhost"], 1, 9092)
    with (
        held_folder(federation.server / HOME, ""),
        pytest.raises(ConfigError, match="Another `fedsel start` is running in"),
    ):
        run_machine(federation.server, {})


def test_a_clients_data_are_read_before_it_connects_and_remembered_only_if_they_can_be(tmp_path):
    client = make_federation(tmp_path / "federation", ["localhost"], 1, 9092).client(0)
    (tmp_path / "bad.csv").write_text("a,label\n1,\n")
    with pytest.raises(ConfigError, match="has no label in column 'label', line 2"):
        run_machine(client, {"data": "csv", "data-path": str(tmp_path / "bad.csv")}, unsigned_apps=True)
    machine = read_machine(client, "client")
    assert (dict(machine.settings), describe_data(client, machine)) == ({}, "")
    (tmp_path / "good.csv").write_text("a,label\n" + "1,x\n2,y\n" * 5)
    mine = with_settings(machine, {"data": "csv", "data-path": str(tmp_path / "good.csv")})
    assert describe_data(client, mine) == "10 training and 0 test examples of shape (1,), 2 classes"


def test_data_of_another_kind_take_the_place_of_the_remembered_ones(tmp_path, monkeypatch):
    """`--data X.npz`, then `--data FOLDER`: the kind npz was remembered, and the folder could not be read."""
    client, started = make_federation(tmp_path / "federation", ["localhost"], 1, 9092).client(0), []
    monkeypatch.setattr(
        "simulation.operations.deployment.start.run_machine", lambda folder, settings, **_: started.append(settings)
    )
    x, y = np.zeros((4, 2), np.float32), np.arange(4) % 2
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y)
    (tmp_path / "mine.csv").write_text("a,sick\n1,x\n2,y\n")
    pd.DataFrame({"a": [1.0, 2.0], "label": [0, 1]}).to_parquet(tmp_path / "mine.parquet")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").touch()
    (tmp_path / "other").mkdir()
    machine = read_machine(client, "client")
    for name, typed, kind in (
        ("mine.npz", [], "npz"),
        ("mine.csv", [], "csv"),
        ("mine.csv", ["--set", 'data-arguments=label="sick"'], "csv"),
        ("saved", [], "hf"),
        ("mine.parquet", [], "hf"),
        ("other", [], None),
    ):
        assert main(["start", str(client), "--data", str(tmp_path / name), *typed]) == 0
        machine = with_settings(machine, started[-1])
        assert machine.settings.get("data") == kind
        assert ("data-arguments" in machine.settings) == bool(typed)
        if kind in ("npz", "csv"):
            unnamed = "the columns a, sick, of which the server names that of the labels"
            assert ("0 test examples" if typed or kind == "npz" else unnamed) in describe_data(client, machine)


def test_the_terminal_has_what_a_user_must_know_once(capfd):
    handler = _Plainly({"SuperNode ID": "Connected.", "<_InactiveRpcError": ""})
    for level, message in (
        (logging.INFO, "SuperNode ID: 7"),
        (logging.INFO, "Received: train message"),
        (logging.WARNING, "Odd."),
        (logging.WARNING, "Odd."),
        (logging.ERROR, "<_InactiveRpcError of a refusal"),
        (logging.ERROR, "Traceback (most recent call last):\n  File\nValueError: wrong"),
    ):
        handler.emit(logging.LogRecord("flwr", level, "", 0, message, (), None))
    printed = [line.split(" ", 2)[2] for line in capfd.readouterr().out.splitlines()]
    assert printed == ["Connected.", "Odd.", "ValueError: wrong"]


def test_a_server_warns_before_its_certificate_ends(tmp_path, monkeypatch, capfd):
    made = make_federation(tmp_path / "federation", ["localhost"], 1, 9092)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(start, "days_left", lambda certificate: -3)
    monkeypatch.setattr(start, "plain_log", lambda *_: None)
    monkeypatch.setattr(superlink, "run_superlink", lambda *_: None)
    start._serve(made.server, read_machine(made.server, "server"))
    assert "the server's certificate is no longer valid, so no client connects." in capfd.readouterr().out
