"""Damaged files: every command that reads one ends with one sentence about it, and not with 0."""

import io
import json
import shutil
import zipfile

import numpy as np
import pytest

from clients.state import ClientHistory, StateError, StateStore
from fedsel_app.records.files import read_arrays
from fedsel_app.records.schema import RoundRecord, as_row
from fedsel_app.wiring.configuration import resolve
from simulation.operations.deployment.local_deployment import Deployment
from simulation.workbench.cli import main
from tests.support.in_process import run_in_process, run_until
from tests.support.report_runs import write_plan

TRAINING = {"strategy": "random", "clients": 3, "cohort": 2, "local_steps": 1, "engine": "inline", "kept_fraction": 0.5}
ROUND = as_row(RoundRecord(1, selected=[0, 1], round_s=1.0, time_s=1.0))
NO_JSON = {
    "empty": b"",
    "cut": b'{"rounds": 3, ',
    "list": b"[]",
    "null": b"null",
    "not UTF-8": b'{"rounds": "\xff\xfe"}',
    "zeros": b"\0" * 100,
    "deep": b"[" * 100_000,
    "two objects": b"{}{}",
    "endless number": b'{"rounds": ' + b"9" * 5000 + b"}",
}
NO_ROW = {name: content + b"\n" for name, content in NO_JSON.items() if name != "empty"} | {"empty object": b"{}\n"}


def foreign(sound, key, *values):
    """Name of the damage -> `sound` with another value of `key`, for each of `values`."""
    return {f"{key} {str(value)[:30]!r}": {**sound, key: value} for value in values}


FOREIGN_SETTINGS = {
    **foreign({}, "rounds", None, [], "3", -1, 2.5, 10**400),
    **foreign({}, "clients", True, 10**15),
    **foreign({}, "target", "high", [0.9], None),
    **foreign({}, "strategy", 5, {}, None),
}
FOREIGN_ROUNDS = {
    **foreign(ROUND, "round", "x", None, True),
    **foreign(ROUND, "selected", {}, ["x"]),
    **foreign(ROUND, "accuracy", "high", [], 10**400),
    **foreign(ROUND, "failures", {}, [5], [{}], [{"client": 0}], None),
    **foreign(ROUND, "components", [], {"loss": 1}, {"loss": ["x"]}),
    **foreign(ROUND, "version", 9, []),
    "nameless round": {key: value for key, value in ROUND.items() if key != "round"},
}
RUN = {"name": "random-s1", "folder": "runs/random-s1"}
PLAN = {"version": 1, "runs": [RUN]}
FOREIGN_PLANS = {
    **foreign(PLAN, "runs", None, {}, [5], [{}], [{"name": "a"}], [{"name": 1, "folder": 2}]),
    **foreign(PLAN, "runs", [RUN | {"cell": {"lr": [1]}}]),
    **{folder: PLAN | {"runs": [RUN | {"folder": folder}]} for folder in ("/etc", "../other", "a/../../b")},
    **foreign(PLAN, "version", None, 2, "1", []),
    **foreign(PLAN, "settings", [], "x", {"rounds": [4]}),
    **foreign(PLAN, "baseline", 5),
}
FOREIGN_SUMMARIES = {
    **foreign({}, "failure_count", "x", None, [], 1.5),
    **foreign({}, "final_accuracy", "x", [], {}),
    **foreign({}, "version", 9),
}
NO_TOML = {
    "open table": b"[methods",
    "not UTF-8": b"rounds = '\xff'",
    "deep": b"rounds = " + b"[" * 5000,
    "a date": b"rounds = 2026-01-01",
    "a table": b"[rounds]\nmany = 3",
    "infinite": b"rounds = inf",
    "huge": b"rounds = " + b"9" * 400,
    "a base of numbers": b"base = 5",
    "a base that is absent": b"base = 'absent.toml'",
    "a method of numbers": b"[methods]\nrandom = 5",
}


def archive(arrays=None, **members):
    """Bytes of an npz file with these arrays, and members of other bytes."""
    file = io.BytesIO()
    np.savez(file, **(arrays or {}))
    with zipfile.ZipFile(file, "a") as held:
        for name, content in members.items():
            held.writestr(name, content)
    return file.getvalue()


def npy(shape, dtype="<f4", body=b""):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + body


def encrypted():
    """An archive whose member says that it needs a password, in both of its headers."""
    content = bytearray(archive({"round": np.array(1)}))
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + flags] |= 1
    return bytes(content)


def compressed_otherwise():
    content = bytearray(archive({"round": np.array(1)}))
    for signature, method in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(signature) + method] = 99
    return bytes(content)


SOUND = archive({"round": np.array(2), "version": np.array(2)})
NO_NPZ = {
    "empty": b"",
    "text": b"not an archive",
    "cut": SOUND[: len(SOUND) // 2],
    "flipped": SOUND[:150] + bytes([SOUND[150] ^ 255]) + SOUND[151:],
    "pickled": archive({"round": np.array([{}], dtype=object)}),
    "bare pickle": b"\x80\x04K\x01.",
    "bare array": npy("()", "<i8", b"\1" + b"\0" * 7),
    "encrypted": encrypted(),
    "another compression": compressed_otherwise(),
    "member of text": archive(round=b"1"),
    "member cut": archive(**{"round.npy": npy("(4,)", body=b"\0" * 8)}),
    "member of a huge shape": archive(**{"round.npy": npy(f"({10**15},)", body=b"\0" * 8)}),
    "member of another header": archive(**{"round.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': 5}     "}),
    "member of records": archive({"round": np.zeros(1, [("a", "<i4")])}),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """An interrupted run with a checkpoint, a finished one, and a comparison of one finished run."""
    folder = tmp_path_factory.mktemp("sound")
    for name in ("stopped", "finished", "comparison/runs/random-s1"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        run_in_process(folder / name, rounds=2, seed=1, checkpoint_every=1, **TRAINING)
    # As a run is that was killed after its last checkpoint.
    for name in ("summary.json", "model.npz", "best-model.npz"):
        (folder / "stopped" / name).unlink()
    np.savez(folder / "stopped" / "checkpoint.npz", round=np.array(2), version=np.array(2))
    write_plan(folder / "comparison", [("random", 1, {})])
    return folder


@pytest.fixture
def place(sound, tmp_path, monkeypatch):
    """A copy of the sound folders, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Deployment, "__enter__", pytest.fail)
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    return tmp_path


COMMANDS = {
    "resume": ["run", "--resume", "stopped"],
    "deploy": ["deploy", "--resume", "stopped"],
    "report": ["report", "finished"],
    "report a comparison": ["report", "comparison"],
    "watch": ["watch", "finished"],
    "compare": [
        *("compare", "--strategies", "random", "--seeds", "1", "--rounds", "2", "--clients", "3", "--cohort", "2"),
        *("--set", "local-steps=1", "--set", "kept-fraction=0.5", "--out", "comparison"),
    ],
    "preset": ["run", "--preset", "mine.toml", "--dry-run"],
    "data": ["run", "--set", "data=npz", "--set", "data-path=mine.npz", "--dry-run"],
}


def objects(damages):
    return {name: json.dumps(content).encode() for name, content in damages.items()}


def lines(damages):
    return {name: content + b"\n" for name, content in objects(damages).items()}


def changed(damages):
    """Contents for a file of one JSON object: what is there, with some of it changed."""
    return {name: (lambda old, new=new: json.dumps(json.loads(old) | new).encode()) for name, new in damages.items()}


def lacking(*keys):
    def without(key):
        return lambda old: json.dumps({name: value for name, value in json.loads(old).items() if name != key}).encode()

    return {f"without {key}": without(key) for key in keys}


SETTINGS = NO_JSON | changed(FOREIGN_SETTINGS)
SHOWN = lacking("rounds", "clients", "target", "data", "model")
ROWS = NO_ROW | lines(FOREIGN_ROUNDS)
ABSENT_CLIENT = lines({"client 7": ROUND | {"selected": [7]}, "client -1": ROUND | {"aggregated": [-1]}})
TABLE = [
    ("resume", "stopped/config.json", SETTINGS),
    ("resume", "stopped/rounds.jsonl", ROWS),
    ("resume", "stopped/clients.jsonl", NO_ROW),
    ("resume", "stopped/checkpoint.npz", NO_NPZ),
    ("deploy", "stopped/config.json", SETTINGS),
    ("report", "finished/config.json", SETTINGS | SHOWN),
    ("report", "finished/rounds.jsonl", ROWS | ABSENT_CLIENT),
    ("report", "finished/clients.jsonl", NO_ROW),
    ("report a comparison", "comparison/comparison.json", NO_JSON | objects(FOREIGN_PLANS)),
    ("report a comparison", "comparison/failures.jsonl", NO_ROW),
    ("report a comparison", "comparison/runs/random-s1/config.json", NO_JSON),
    ("watch", "finished/config.json", NO_JSON | lacking("rounds")),
    ("compare", "comparison/runs/random-s1/config.json", SETTINGS),
    ("compare", "comparison/runs/random-s1/summary.json", NO_JSON | changed(FOREIGN_SUMMARIES)),
    ("preset", "mine.toml", NO_TOML),
    ("data", "mine.npz", NO_NPZ),
]
EACH = 12
"""Every so many damages of a file are tried among the fast tests, all of them among the slow ones."""
CASES = [
    pytest.param(
        command, file, content, id=f"{command}-{file}-{name}", marks=[pytest.mark.slow] if index % EACH else []
    )
    for command, file, damages in TABLE
    for index, (name, content) in enumerate(damages.items())
]


@pytest.mark.parametrize(("command", "file", "content"), CASES)
def test_a_damaged_file_is_one_sentence(place, capsys, command, file, content):
    path = place / file
    path.write_bytes(content(path.read_bytes()) if callable(content) else content)
    assert main(COMMANDS[command]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("fedsel: ")
    assert error.count("\n") == 1
    assert len(error) < 1000


@pytest.mark.parametrize("content", NO_NPZ.values(), ids=NO_NPZ)
def test_a_damaged_state_of_a_client_is_one_sentence(tmp_path, content):
    """The client's message fails with it, and the round continues without the client."""
    path = tmp_path / "client-3" / "round-1.npz"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"^The client state .*round-1\.npz cannot be read \([^\n]*\)\. Start the run"):
        StateStore(tmp_path).recall(3, ClientHistory(last_instructed=1, last_aggregated=1))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["ef14", "ef21"])
def test_a_foreign_array_in_a_checkpoint_is_one_sentence(tmp_path, capsys, scheme):
    """Every array in turn is text, empty, or of another shape; if that is valid, the run continues."""
    settings = {key.replace("_", "-"): value for key, value in TRAINING.items()}
    settings |= {"strategy": "hetero-select", "rounds": 2, "checkpoint-every": 1, "error-feedback-scheme": scheme}
    config = resolve(settings | {"out": str(tmp_path / "run"), "state-dir": str(tmp_path / "run")})
    run_until(tmp_path / "run", config, 2)
    with (tmp_path / "run" / "checkpoint.npz").open("rb") as file:
        arrays = read_arrays(file)
    refused = 0
    for name, array in arrays.items():
        for foreign_array in (np.array("x"), np.zeros(0, array.dtype), np.zeros((3, 7), array.dtype)):
            shutil.copytree(tmp_path / "run", tmp_path / "copy")
            np.savez(tmp_path / "copy" / "checkpoint.npz", **arrays | {name: foreign_array})
            code, error = main(["run", "--resume", str(tmp_path / "copy")]), capsys.readouterr().err
            assert code in (0, 2), name
            assert error.count("fedsel: ") == error.count("\n") == (code != 0), (name, error)
            refused += code != 0
            shutil.rmtree(tmp_path / "copy")
    assert refused > 2 * len(arrays)
