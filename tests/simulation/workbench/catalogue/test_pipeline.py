"""Pipeline of a run in one sentence."""

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.workbench.catalogue.pipeline import pipeline_text

DEFAULT = (
    "compressor top-k (kept-fraction 0.2, error feedback); "
    "solver fedprox (mu 0.1, momentum 0.9, lr 0.05 falling to 0.025, gradients clipped at 2); "
    "server optimizer momentum (0.5, server-lr 1)"
)
FEDAVG = "compressor none; solver sgd (lr 0.05); server optimizer mean (server-lr 1)"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, DEFAULT),
        ({"preset": "fedavg"}, FEDAVG),
        (
            {"preset": "fedavg", "compressor": "common-k", "ring-bits": 8},
            FEDAVG.replace("none", "common-k (kept-fraction 0.2, 8 bits a value, error feedback)"),
        ),
        (
            {"compressor": "qsgd", "error-feedback": False, "solver": "sgd", "optimizer": "adam", "lr-decay": 0.0},
            "compressor qsgd (qsgd-levels 16); solver sgd (adam, momentum 0.9, lr 0.05, gradients clipped at 2); "
            "server optimizer momentum (0.5, server-lr 1)",
        ),
        (
            {
                "compressor": "none",
                "value-bits": 8,
                "solver": "scaffold",
                "optimizer": "sgd",
                "momentum": 0.0,
                "lr-decay": 0.0,
                "lr-step-rounds": 10,
                "server-optimizer": "fedadam",
                "clip-norm": 0.0,
            },
            "compressor none (8 bits a value, error feedback); solver scaffold (lr 0.05, halved every 10 rounds); "
            "server optimizer fedadam (server-lr 1)",
        ),
    ],
)
def test_the_pipeline_is_told_by_what_acts(settings, text):
    assert pipeline_text(resolve(settings).values()) == text
