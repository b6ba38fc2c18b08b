"""Hostile data files (N8): one sentence for each, and nothing hangs."""

import json
import os
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load
from simulation.workbench.cli import main


def npz(folder, **other):
    """A data set of four images in an .npz file, with `other` arrays in place of its own."""
    x, y = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
    np.savez(folder / "data.npz", **({"x_train": x, "y_train": y, "x_test": x, "y_test": y} | other))
    return DataConfig(data="npz", data_path=str(folder / "data.npz"))


def image_folder(folder):
    """A data set of an image in each of two classes."""
    for part in ("train", "test"):
        for kind in ("cat", "dog"):
            (folder / part / kind).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / part / kind / "0.png")
    return DataConfig(data="image-folder", data_path=str(folder))


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(side):
    """A PNG of `side` x `side` black pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0))
    lines = zlib.compress(b"\0" * (side * (1 + -(-side // 8))))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"y_train": np.array([0, 1, 0, 2**40])}, "has the label 1099511627776 in y_train"),
        ({"y_test": np.array([0, 1, 0, 2**63 + 1], np.uint64)}, "has the label 9223372036854775809 in y_test"),
        ({"classes": np.array(10**9)}, "'classes' .*1000000000.* from 1 to 100,000"),
        ({"x_train": np.zeros((4, 8, 0), np.float32)}, "samples without values"),
        ({"owners": np.array([0.5, 1, 0, 1])}, "has owners of type float64 and shape .* texts or whole numbers"),
    ],
)
def test_labels_that_no_model_could_have_are_refused(tmp_path, other, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load(npz(tmp_path, **other), 1)


@pytest.mark.timeout(120)
def test_an_image_of_endless_pixels_is_refused_by_its_header(tmp_path):
    config = image_folder(tmp_path)
    (tmp_path / "train" / "cat" / "0.png").write_bytes(png(12_000))
    with pytest.raises(ConfigError, match=r"train/cat/0\.png' is absent or damaged: .* pixels"):
        load(config, 1)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("data", "file"),
    [
        ("image-folder", "test/dog/0.png"),
        ("mnist", "MNIST/raw/train-images-idx3-ubyte"),
    ],
)
def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path, data, file):
    image_folder(tmp_path)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).unlink(missing_ok=True)
    os.mkfifo(tmp_path / file)
    with pytest.raises(ConfigError, match=r" is not a file|: it is not a file"):
        load(DataConfig(data=data, data_path=str(tmp_path)), 1)


@pytest.mark.timeout(60)
def test_a_table_of_endless_columns_is_refused_by_its_first_line(tmp_path):
    """U11: 1.6 MB took minutes."""
    (tmp_path / "wide.csv").write_text(
        "label," + ",".join(f"c{place}" for place in range(200_000)) + "\n0" + 200_000 * ",1"
    )
    with pytest.raises(ConfigError, match=r"has 200,001 columns, and a table may have 10,000"):
        load(DataConfig(data="csv", data_path=str(tmp_path / "wide.csv")), 1)


@pytest.mark.parametrize("name", ["builtins:exec", "builtins:print", ".:x"])
def test_functions_of_python_itself_are_no_data_set(name):
    with pytest.raises(ConfigError):
        load(DataConfig(data=name), 1)


# A stranger's preset or run folder (N9) ------------------------------------------------------------------------

EVIL = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"
KEYS = {"strategy": "evilmod:Net", "model": "evilmod:net", "data": "evilmod:load", "task": "evilmod:Task"}


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """The working directory, with a module of the stranger's in it."""
    (tmp_path / "evilmod.py").write_text(EVIL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "evilmod", raising=False)
    return tmp_path


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_a_strangers_preset_imports_nothing(stranger, key, dry, capsys):
    (stranger / "theirs.toml").write_text(f'{key} = "{KEYS[key]}"\n', encoding="utf-8")
    assert main(["run", "--preset", "theirs.toml", "--engine", "inline", "--out", "run", *dry]) == 2
    assert not (stranger / "imported").exists()
    assert f"add --allow-code {KEYS[key]} to the command" in capsys.readouterr().err


def test_a_strangers_run_folder_imports_nothing(stranger, capsys):
    (stranger / "rounds.jsonl").touch()
    (stranger / "clients.jsonl").touch()
    (stranger / "config.json").write_text(json.dumps({"model": "evilmod:net"}), encoding="utf-8")
    for extra in ([], ["--dry-run"]):
        assert main(["run", "--resume", ".", *extra]) == 2
        assert not (stranger / "imported").exists()
        assert "add --allow-code evilmod:net to the command" in capsys.readouterr().err


@pytest.mark.parametrize("leave", [["--allow-code", "evilmod:Net"], ["--strategy", "evilmod:Net"]])
def test_what_the_command_names_is_imported(stranger, leave, capsys):
    (stranger / "theirs.toml").write_text('strategy = "evilmod:Net"\n', encoding="utf-8")
    assert main(["run", "--preset", "theirs.toml", "--dry-run", *leave]) == 2
    assert (stranger / "imported").exists()
    assert "has no such function or class" in capsys.readouterr().err
