"""Whole-number samples: tokens are looked up and never normalised; as floats they are refused."""

import numpy as np
import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from tests.cases import data, models


def float_tokens(config):
    return {key: array.astype(np.float32) if key[0] == "x" else array for key, array in data.tokens(config).items()}


def short_tokens(config):
    return {key: array.astype(np.int16) for key, array in data.tokens(config).items()}


def bag(shape, classes):
    class Bag(models.Bag):
        def forward(self, x):
            return super().forward(x.long())

    return Bag(shape, classes)


def results(folder, name):
    settings = {"data": name, "model": f"{__name__}:bag", "strategy": "random", "lr": 0.5, "out": str(folder / name)}
    settings |= {"clients": 4, "cohort": 4, "rounds": 2, "partition": "iid", "compressor": "none"}
    settings |= {"clip-norm": 0.0, "local-steps": 5, "server-optimizer": "mean"}
    rows = []
    inline_engine.simulate(resolve(settings), rows.append)
    assert [row["failures"] for row in rows] == [[]] * 2
    return [(row["accuracy"], row["loss"]) for row in rows]


def test_tokens_of_any_whole_type_are_the_same_and_floats_are_refused(tmp_path):
    assert results(tmp_path, f"{__name__}:short_tokens") == results(tmp_path, "tests.cases.data:tokens")
    with pytest.raises(ConfigError, match=r"does not accept .*float32, and tokens are int64"):
        results(tmp_path, f"{__name__}:float_tokens")
