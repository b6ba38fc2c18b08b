"""Cases of the table of bits: a name, and the settings of a run of six rounds on the digits in which little differs."""

from torch import nn

from strategies import STRATEGIES
from tests.support.engines import AT_ONCE

Settings = dict[str, object]
BASE: Settings = {"clients": 8, "cohort": 3, "rounds": 6, "local-steps": 5, "seed": 7, "device": "cpu"}
OWN: dict[str, Settings] = AT_ONCE | {"terraform": {"cohort": 6, "terraform.min-clients": 2}}
"""Settings with which a method comes to its own rule within six rounds."""
HOLDOUT: Settings = {"holdout-fraction": 0.2}
MLP: Settings = {"model": "mlp", "curvature-layers": 1}
UNEQUAL: Settings = {"uplink-min-bits-per-s": 1e4, "uplink-max-bits-per-s": 1e6}
ISP: Settings = HOLDOUT | {"participation": "isp", "isp-interval": 2, "isp-draws": 3}
PRIVATE: Settings = {"dp-clip-norm": 1.0, "weighting": "uniform", "compressor": "none"}
SURROGATE: Settings = ISP | {"isp-loss": "surrogate", "surrogate-examples": 100}
NORMED: Settings = {"model": "tests.bits.cases:batch_norm"}


def batch_norm(sample_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small network with BatchNorm and dropout."""
    return nn.Sequential(
        *(nn.Conv2d(sample_shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2)),
        *(nn.Flatten(), nn.Linear(4 * (sample_shape[1] - 2) * (sample_shape[2] - 2), outputs)),
    )


METHODS: dict[str, Settings] = {f"method/{name}": {"strategy": name} | OWN.get(name, {}) for name in STRATEGIES}
"""Each method, with the settings of `OWN`."""

COMPRESSION: dict[str, Settings] = {
    "none": {"compressor": "none"},
    **{
        f"top-k {feedback}": {"compressor": "top-k", "model": "mlp"} | settings
        for feedback, settings in {
            "ef14": {"error-feedback-scheme": "ef14"},
            "ef21": {"error-feedback-scheme": "ef21"},
            "without feedback": {"error-feedback": False},
        }.items()
    },
    "top-k of a cnn": {"model": "cnn"},
    "rand-k ef14": {"compressor": "rand-k"},
    "rand-k ef21": {"compressor": "rand-k", "error-feedback-scheme": "ef21"},
    "common-k": {"compressor": "common-k", "model": "mlp"},
    "common-k 8 bits": {"compressor": "common-k", "ring-bits": 8, "cohort": 6, "aggregation": "median"},
    "qsgd ef21": {"compressor": "qsgd", "error-feedback-scheme": "ef21"},
    "qsgd without feedback": {"compressor": "qsgd", "error-feedback": False},
    **{
        f"{compressor} {bits} bits": {"compressor": compressor, "value-bits": bits}
        for compressor in ("none", "top-k", "rand-k")
        for bits in (16, 8, 4)
    },
    "top-k 8 bits ef21": {"value-bits": 8, "error-feedback-scheme": "ef21"},
    "curvature": MLP,
    "residual-decay static": {"residual-decay": "static"},
    "allocation uniform": {"allocation": "uniform"},
    "link-cap round": UNEQUAL | {"link-cap": "round"},
    "link-cap none": UNEQUAL | {"link-cap": "none"},
}
TRAINING: dict[str, Settings] = {
    "solver sgd": {"solver": "sgd"},
    "solver scaffold": {"solver": "scaffold"},
    "solver feddyn": {"solver": "feddyn", "compressor": "none", "server-optimizer": "mean"},
    "solver fednova": {"solver": "fednova", "local-steps": 0, "local-epochs": 1},
    "optimizer adam": {"optimizer": "adam", "lr": 0.01},
    "optimizer adamw": {"optimizer": "adamw", "lr": 0.01, "weight-decay": 0.01},
    "lr-step-rounds": {"lr-step-rounds": 2, "lr-decay": 0.0},
    "augment crop-flip": {"augment": "crop-flip"},
    "score-adaptive-lr": {"strategy": "hetero-select", "hetero-select.score-adaptive-lr": True},
}
TASKS: dict[str, Settings] = {
    "regression": {
        "data": "laboratory.data_sets.regression:load",
        "data-arguments": "clients=8",
        "model": "linear",
        "partition": "natural",
    },
    "synthetic": {
        "data": "laboratory.data_sets.synthetic:load",
        "data-arguments": "clients=8",
        "partition": "natural",
    },
    "multi-label": {
        "data": "laboratory.data_sets.ecg:load",
        "data-arguments": "examples=100",
        "compressor": "none",
        "positive-weights": "client",
    },
}
PARTICIPATION: dict[str, Settings] = {
    "adafl-full": {"participation": "adafl-full", "growth-first": 2},
    "isp": ISP,
    "isp jury subset": ISP | {"isp-jury": "subset"},
    "isp code": ISP | {"isp-form": "code"},
    "isp warm-up": ISP | {"isp-warmup-rounds": 2, "isp-warmup-epochs": 1},
    "isp surrogate": SURROGATE,
    "isp-ri surrogate": SURROGATE | {"participation": "isp-ri"},
    "isp BatchNorm": ISP | NORMED | {"calibration-form": "training"},
    "isp median": ISP | {"aggregation": "median"},
    **{
        f"isp around {name}": ISP | {"strategy": name} | OWN.get(name, {})
        for name in ("hetero-select", "fedcor", "delta")
    },
}
AGGREGATION: dict[str, Settings] = {
    "median": {"aggregation": "median"},
    "trimmed-mean": {"aggregation": "trimmed-mean", "cohort": 5},
    "krum": {"aggregation": "krum", "cohort": 5},
    "multi-krum": {"aggregation": "multi-krum", "cohort": 6},
    "max-update-norm": {"max-update-norm": 1.0},
    "weighting uniform": {"weighting": "uniform", "strategy": "hetero-select"},
    **{
        f"server-optimizer {name}": {"server-optimizer": name, "server-lr": 0.1 if name.startswith("fed") else 1.0}
        for name in ("momentum", "mean", "fedadam", "fedyogi", "fedadagrad")
    },
    "privacy": PRIVATE,
    "privacy top-k": PRIVATE | {"compressor": "top-k"},
}
CALIBRATION: dict[str, Settings] = {
    "average": NORMED | {"calibration-form": "average"},
    "sequential": NORMED | {"calibration-form": "sequential", "max-update-norm": 0.0},
    "training": NORMED | {"calibration-form": "training"},
    "training median": NORMED | {"calibration-form": "training", "aggregation": "median"},
}
ROUND: dict[str, Settings] = {
    "client-eval": HOLDOUT | {"client-eval": True},
    "over-selection": {"over-selection": 0.7},
    "round-deadline-s": {"round-deadline-s": 1.0},
    "client-failure-rate": {"client-failure-rate": 0.4},
    "client-failure-rate ef21": {"client-failure-rate": 0.4, "error-feedback-scheme": "ef21"},
    "client-failure-rate isp": ISP | {"client-failure-rate": 0.4},
    "stop-at-target": {"stop-at-target": True, "target": 0.5},
    "details code": MLP | {"details": "code", "probe-batches": 2, "strategy": "hetero-select"},
    "link-coupling inverted-loss": {"link-coupling": "inverted-loss"},
    "probes on test parts": HOLDOUT | {"strategy": "power-of-choice", "power-of-choice.loss": "test"},
    "terraform rounds": OWN["terraform"] | {"strategy": "terraform", "terraform.count": "rounds"},
    "cohort above all": {"cohort": 8, "over-selection": 0.5},
}


NEEDED: dict[str, Settings] = {
    "hetero-select.average-start": {"hetero-select.average-decay": 0.5},
    "power-of-choice.loss": HOLDOUT,
    "divfl.gradients": {"compressor": "none"},
}
"""Setting of a method -> what else it needs to have an effect."""


def rules() -> dict[str, Settings]:
    """Each choice of a method's own settings that is not the default."""
    found: dict[str, Settings] = {}
    for name, method in STRATEGIES.items():
        for entry in method.Config.entries(f"{name}."):
            needed = OWN.get(name, {}) | NEEDED.get(entry.key, {})
            for choice in entry.choices:
                if choice != entry.default:
                    found[f"rule/{entry.key} {choice}"] = {"strategy": name} | needed | {entry.key: choice}
    return found


SHARED: dict[str, Settings] = {
    f"{group}/{name}": {"strategy": strategy} | settings
    for group, strategy, cases in (
        ("compression", "hetero-select", COMPRESSION),
        ("training", "random", TRAINING),
        ("task", "random", TASKS),
        ("participation", "random", PARTICIPATION),
        ("aggregation", "random", AGGREGATION),
        ("calibration", "random", CALIBRATION),
        ("round", "random", ROUND),
    )
    for name, settings in cases.items()
}
"""Each shared setting that a round goes by, around one method."""
CASES: dict[str, Settings] = {name: BASE | case for name, case in (METHODS | SHARED | rules()).items()}
"""Case -> settings of its run."""
OWN_APPS: dict[str, Settings] = {
    f"own app/{method}": {"strategy": method, "clients": 4, "cohort": 2, "links": "simulated"} | settings
    for method, settings in {"random": {}, "hetero-select": {"compressor": "top-k"}, "oort": {}}.items()
}
"""Case -> keywords of `fedsel_app.strategy` in a user's own Flower app, that of `tests.support.own_app`."""
