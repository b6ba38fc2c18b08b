"""Whole-number samples: tokens are looked up and never normalised; counts and grey levels are numbers as before."""

import numpy as np
import pytest
from torch import nn

from fedsel_app.config import DataConfig, PreprocessingConfig
from fedsel_app.models.building import preprocessing_for
from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from tests.cases import data, models


def float_tokens(config):
    return {key: array.astype(np.float32) if key[0] == "x" else array for key, array in data.tokens(config).items()}


def short_tokens(config):
    return {key: array.astype(np.int16) for key, array in data.tokens(config).items()}


def levels(config):
    """Grey levels 0 to 255 as floats."""
    return {key: array * 5 if key[0] == "x" else array for key, array in float_tokens(config).items()}


def bag(shape, classes):
    class Bag(models.Bag):
        def forward(self, x):
            return super().forward(x.long())

    return Bag(shape, classes)


def linear(shape, classes):
    return nn.Linear(shape[0], classes)


def accuracies(folder, name, number):
    settings = {"data": name, "model": f"{__name__}:bag", "strategy": "random", "lr": 0.5, "out": str(folder / name)}
    settings |= {"clients": 4, "cohort": 4, "rounds": number, "partition": "iid", "compressor": "none"}
    settings |= {"clip-norm": 0.0, "local-steps": 100, "server-optimizer": "mean"}
    rows = []
    inline_engine.simulate(resolve(settings), rows.append)
    assert [row["failures"] for row in rows] == [[]] * number
    return [row["accuracy"] for row in rows]


def test_tokens_are_learned_whatever_their_type(tmp_path):
    learned = accuracies(tmp_path, f"{__name__}:float_tokens", 25)
    assert max(learned) >= 0.97
    for name in ("tests.cases.data:tokens", f"{__name__}:short_tokens"):
        assert accuracies(tmp_path, name, 3) == learned[:3]


@pytest.mark.parametrize(
    ("name", "model", "normalised"),
    [
        ("float_tokens", f"{__name__}:bag", False),
        ("float_tokens", f"{__name__}:linear", True),
        ("float_tokens", "mlp", True),
        ("levels", f"{__name__}:linear", True),
        ("levels", f"{__name__}:bag", True),  # more values than the table has: the run refuses it
    ],
)
def test_floats_are_tokens_only_if_the_model_takes_them_as_they_are(name, model, normalised):
    config = DataConfig(data=f"{__name__}:{name}")
    assert preprocessing_for(model, config, PreprocessingConfig(), 1).normalize is normalised
