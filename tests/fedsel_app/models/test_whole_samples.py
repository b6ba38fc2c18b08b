"""Whole-number samples: tokens are looked up and never normalised; counts and grey levels are numbers as before."""

import numpy as np
import pytest

from fedsel_app.config import DataConfig, PreprocessingConfig
from fedsel_app.models.building import preprocessing_for
from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine

MODULE = '''
import numpy as np
import torch
from torch import nn

VOCABULARY = 50


def tokens(config):
    rng = np.random.default_rng(0)
    x = rng.integers(1, VOCABULARY, (600, 12))
    y = ((x < 25).sum(1) > 6).astype("int64")
    return x[:500], y[:500], x[500:], y[500:]


def float_tokens(config):
    return tuple(part.astype("float32") if place % 2 == 0 else part for place, part in enumerate(tokens(config)))


def short_tokens(config):
    return tuple(part.astype("int16") for part in tokens(config))


def codes(config):
    """Three categories of 4, 9 and 20 values in 64-bit floats."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.integers(0, most, 600) for most in (4, 9, 20)]).astype("float64")
    y = ((x[:, 0] < 2) == (x[:, 2] < 10)).astype("int64")
    return x[:500], y[:500], x[500:], y[500:]


def levels(config):
    """Grey levels 0 to 255 as floats."""
    x, y, x_test, y_test = tokens(config)
    return x.astype("float32") * 5, y, x_test.astype("float32") * 5, y_test


class Bag(nn.Module):
    def __init__(self, classes, size):
        super().__init__()
        self.table, self.out = nn.Embedding(size, 8), nn.Linear(8, classes)

    def forward(self, tokens):
        return self.out(self.table(tokens.long()).mean(1))


class Coded(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(most, 8) for most in (4, 9, 20))
        self.out = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, codes):
        columns = [table(codes[:, place].long()) for place, table in enumerate(self.tables)]
        return self.out(torch.cat(columns, 1))


def bag(shape, classes):
    return Bag(classes, VOCABULARY)


def coded(shape, classes):
    return Coded(classes)


def linear(shape, classes):
    return nn.Linear(shape[0], classes)
'''


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_tokens.py").write_text(MODULE)


def rounds(folder, data, model, number):
    settings = {"data": f"own_tokens:{data}", "model": f"own_tokens:{model}", "strategy": "random", "lr": 0.5}
    settings |= {"clients": 4, "cohort": 4, "rounds": number, "partition": "iid", "compressor": "none"}
    settings |= {"clip-norm": 0.0, "local-steps": 100, "server-optimizer": "mean", "out": str(folder / data)}
    rows = []
    inline_engine.simulate(resolve(settings), rows.append)
    assert [row["failures"] for row in rows] == [[]] * number
    return [row["accuracy"] for row in rows]


def test_tokens_are_learned_whatever_their_type(tmp_path):
    learned = rounds(tmp_path, "float_tokens", "bag", 25)
    assert max(learned) >= 0.97
    for data in ("tokens", "short_tokens"):
        assert rounds(tmp_path, data, "bag", 3) == learned[:3]


def test_codes_of_categories_are_learned(tmp_path):
    assert max(rounds(tmp_path, "codes", "coded", 5)) >= 0.97


@pytest.mark.parametrize(
    ("data", "model", "normalised"),
    [
        ("float_tokens", "own_tokens:bag", False),
        ("codes", "own_tokens:coded", False),
        ("float_tokens", "own_tokens:linear", True),
        ("float_tokens", "mlp", True),
        ("levels", "own_tokens:linear", True),
        ("levels", "own_tokens:bag", True),  # more values than the table has: the run refuses it
    ],
)
def test_floats_are_tokens_only_if_the_model_takes_them_as_they_are(data, model, normalised):
    config = DataConfig(data=f"own_tokens:{data}")
    assert preprocessing_for(model, config, PreprocessingConfig(), 1).normalize is normalised


def test_the_digits_and_real_numbers_stay_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2
    np.savez(tmp_path / "x.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    real = DataConfig(data="npz", data_path=str(tmp_path / "x.npz"))
    for config in (DataConfig(), real):
        assert preprocessing_for("own_tokens:linear", config, PreprocessingConfig(), 1) == PreprocessingConfig()
