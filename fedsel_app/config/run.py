"""Settings of a run: its federation, its evaluation and its records; and the metrics of torchmetrics, by name."""

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from fedsel_app.config.settings import ConfigError, Settings, did_you_mean, require, setting, unless

EACH = "each"
"""Average of a metric that is not one: its value for each class or label."""


class Metric(NamedTuple):
    """Metric of torchmetrics: its function in `torchmetrics.functional`, the average over classes, and its tasks."""

    function: str
    average: str = ""
    tasks: tuple[str, ...] = ("classification", "multi-label")


METRICS = {
    **{
        f"{name}-{average}": Metric(function, average)
        for name, function in {"f1": "f1_score", "precision": "precision", "recall": "recall"}.items()
        for average in ("macro", "micro", "weighted", EACH)
    },
    **{
        name + (average != "macro") * f"-{average}": Metric(function, average)
        for name, function in {"auroc": "auroc", "average-precision": "average_precision"}.items()
        for average in ("macro", "weighted", EACH)
    },
    "balanced-accuracy": Metric("recall", "present", ("classification",)),
    "mcc": Metric("matthews_corrcoef", "", ("classification",)),
    "kappa": Metric("cohen_kappa", "", ("classification",)),
    "mae": Metric("mean_absolute_error", "", ("regression",)),
    "rmse": Metric("mean_squared_error", "", ("regression",)),
}
"""Name in `metrics` -> the metric. In records, the name has underscores, and that of a class or label ends with it."""
LOWER_WINS = ("backdoor", "loss", "logloss", "error", "mae", "mse", "rmse", "perplexity")
"""Words in the names of scores of which a lower value is better; only a loss may be below 0."""
AT_MOST_1 = ("r2", "mcc", "kappa")
"""Names of scores that may be negative, and are at most 1."""
SHARES = ("accuracy", "g_mean", "weighted_sensitivity", "weighted_specificity")
"""Names of scores of fedsel's tasks that are shares; those of all other `METRICS` of classes are shares too."""
TITLES = {"g_mean": "G-mean", "r2": "R²"}
"""Names of scores, as readers know them."""
ACRONYMS = ("f1", "auroc", "mcc", "mae", "mse", "rmse")
"""Words in the names of scores that readers know in capitals."""


def of_each(score: str) -> str:
    """Name in `METRICS` of the metric that has the score for each class or label, such as f1-each for f1-0 and f1-died.

    Empty for all other scores.
    """
    dashed = score.replace("_", "-")
    name = dashed if dashed.rpartition("-")[2].isdecimal() else score
    families = (each for each in METRICS if each.endswith(EACH) and name.startswith(each.removesuffix(EACH)))
    return "" if dashed in METRICS else next(families, "")


def lower_wins(score: str) -> bool:
    """True if a lower value of the score of this name is better; a user's own name has any form, such as eval-loss.

    A class may have such a name too, as in f1_error.
    """
    families = tuple(each.removesuffix(EACH).replace("-", "_") for each in METRICS if each.endswith(EACH))
    return not score.startswith(families) and any(word in LOWER_WINS for word in _words(score))


def _words(score: str) -> list[str]:
    return re.split(r"[\W_]+", score.lower())


def score_title(score: str) -> str:
    """Name of the score for readers, such as "F1 macro" for f1_macro, and "F1 of label 0" for f1_0."""
    family, _, label = score.rpartition("_")
    if label.isdecimal():
        return f"{score_title(family)} of label {label}"
    return TITLES.get(score) or " ".join(word.upper() if word in ACRONYMS else word for word in score.split("_"))


def score_bounds(score: str) -> tuple[float, float]:
    """Bounds of the score of this name; infinite if they are unknown."""
    if lower_wins(score):
        return -math.inf if "loss" in _words(score) else 0.0, math.inf
    if score in AT_MOST_1:
        return -math.inf, 1.0
    is_share = score.replace("_", "-") in METRICS or of_each(score)
    return (0.0, 1.0) if is_share or score in SHARES else (-math.inf, math.inf)


@dataclass(frozen=True)
class RunConfig(Settings, scope="federation", private=True):
    """Federation: method, model, rounds, clients and seed."""

    strategy: str = setting(
        "hetero-select",
        "selection method, or package.module:Class",
        first=True,
        private=("random", "full"),
        code=True,
        own=True,
    )
    model: str = setting(
        "logistic", "model architecture, or package.module:function", first=True, scope="task", code=True
    )
    initial_model: str = setting(
        "",
        "weights at the start: a run folder, or a file of the model's state dict (.safetensors); empty:"
        " drawn from `seed`",
        first=True,
        scope="task",
    )
    rounds: int = setting(20, "number of communication rounds, T", low=1, first=True)
    clients: int = setting(20, "number of clients in the federation, K", low=1, high=10_000_000, first=True)
    cohort: int = setting(5, "number of clients selected in each round, M", low=1, first=True, scope="server")
    seed: int = setting(42, "seed of every random draw; the same seed gives the same bits", low=0, first=True, own=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort > self.clients:
            raise ConfigError(f"The 'cohort' parameter must be at most 'clients' ({self.clients}). Got {self.cohort}.")


@dataclass(frozen=True)
class EvaluationConfig(Settings, scope="federation", private=True):
    """Evaluation: when and on what the global model is evaluated, its target, and the loss probes of clients."""

    eval_every: int = setting(
        1, "number of rounds between two evaluations of the global model on the test set", low=1, first=True
    )
    client_eval: bool = setting(
        False, "also evaluates the global model on the test part of each client (needs holdout-fraction above 0)"
    )
    target: float = setting(
        0.9,
        "value of the score to reach on the test set. The run reports the round, the seconds and the bytes at which it"
        " is reached",
        above=0.0,
        first=True,
    )
    score: str = setting(
        "",
        "metric by which models are compared, such as f1-macro, or f1-died for a class died: the target, the best model"
        " and all reports use it."
        " Empty: accuracy (multi-label data: g-mean; regression: r2)",
        scope="task",
    )
    metrics: str = setting(
        "", "further metrics on each test set, separated by commas: " + ", ".join(METRICS), scope="task"
    )
    stop_at_target: bool = setting(False, "ends the run in the round that reaches the target")
    patience: int = setting(
        0,
        "ends the run after this number of evaluations in a row without a smaller loss on the validation set; 0: never",
        low=0,
        private=(0,),
        read_by={"validation-fraction": unless(0.0)},
    )
    probe_batches: int = setting(
        8, "number of mini-batches in a loss probe, for methods that probe", low=1, high=10_000_000
    )
    probe_bits: int = setting(
        32,
        "bits of each parameter of the model that is sent for a loss probe: 32, 16, 8 or 4. Fewer than 32 are rounded"
        " as with value-bits, so the loss is that of the rounded model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.probe_bits in (32, 16, 8, 4), "probe-bits", "32, 16, 8 or 4", self.probe_bits)
        for metric in self.metrics.split(",") if self.metrics else ():
            if metric.strip() not in METRICS:
                raise ConfigError(
                    f"The 'metrics' must be some of {', '.join(METRICS)}, separated by commas. Got {metric.strip()!r}."
                    f"{did_you_mean(metric.strip(), METRICS)}"
                )

    def score_key(self, classes: tuple[str, ...]) -> str:
        """Name of `score` in records; empty if the task decides. A class has its number in `classes`, their names."""
        family = of_each(self.score).removesuffix(EACH)
        name = self.score[len(family) :]
        number = str(classes.index(name)) if family and name in classes and not name.isdecimal() else name
        return (family + number).replace("-", "_")

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of `METRICS` in `metrics`, and the one that has the score."""
        named = [*map(str.strip, self.metrics.split(",")), of_each(self.score) or self.score.replace("_", "-")]
        return tuple(dict.fromkeys(name for name in named if name in METRICS))

    def measured_keys(self, outputs: int) -> list[str]:
        """Names in records of the `measured` metrics of a model with this number of outputs."""
        keys = [name.replace("-", "_") for name in self.measured]
        each = {key: [f"{key.removesuffix(EACH)}{label}" for label in range(outputs)] for key in keys}
        return [name for key in keys for name in (each[key] if key.endswith(EACH) else [key])]


@dataclass(frozen=True)
class RecordConfig(Settings, scope="place"):
    """Records: the run folder, checkpoints and the states of clients."""

    checkpoint_every: int = setting(
        10, "number of rounds between two checkpoints, from which a run can be resumed; 0 writes none", low=0
    )
    changed_data: bool = setting(
        False,
        "resumes a run although its data, or a file that a setting names, have changed since it began; its earlier"
        " scores are then those of other data",
        private=(False,),
    )
    resume: bool = setting(False, "resumes the run in `out` from its last checkpoint", own=True)
    out: str = setting("", "run folder; empty: a new folder below runs/ in the working directory", first=True, own=True)
    state_dir: str = setting(
        "",
        "folder for the states of a deployed client, set in its --node-config; empty: ~/.local/state/fedsel."
        " A simulation keeps the states in `out`",
        scope="engine",
        owner="alone",
        own=True,
    )


@dataclass(frozen=True)
class ExecutionConfig(Settings, scope="task", private=True):
    """Execution: engine, workers, threads, devices and precision."""

    engine: str = setting(
        "auto",
        "where a simulation runs",
        choices={
            "auto": "the one of the two that is expected to finish first",
            "inline": "in this process",
            "ray": "in the workers of Ray, side by side",
        },
        first=True,
        scope="engine",
    )
    workers: int = setting(
        0, "number of Ray actors that train side by side; 0 takes one per core", low=0, first=True, scope="engine"
    )
    threads: int = setting(1, "number of torch threads of each client", low=1, owner="may")
    eval_threads: int = setting(
        2, "number of torch threads of the server's evaluation, while clients are idle; small models take one", low=1
    )
    client_gpus: float = setting(0.0, "share of a GPU for each Ray actor", low=0.0, scope="engine")
    device: str = setting(
        "auto",
        "device on which clients train",
        choices={"auto": "cuda, else mps, else cpu", "cpu": "", "cuda": "", "mps": ""},
        first=True,
        owner="may",
    )
    precision: str = setting(
        "fp32",
        "number format of the forward and backward passes; weights, losses and updates always are fp32. The two formats"
        " give different bits",
        choices=("fp32", "bf16"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine == "inline" and self.workers:
            raise ConfigError("The 'engine' inline has no workers: leave 'workers' at 0, or set 'engine' to ray.")
