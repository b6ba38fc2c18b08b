"""Combinations of settings that exclude one another are refused with a sentence that says what to do."""

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.validation import validate_task
from strategies import STRATEGIES

ROBUST = {"strategy": "random", "aggregation": "median", "error-feedback": False}
PRIVATE = {"strategy": "random", "dp-clip-norm": 1.0, "weighting": "uniform"}
SEARCHING = {"strategy": "random", "participation": "isp"}

REFUSED = [
    ({"clients": 5, "cohort": 2, "min-returned": 6}, "'min-returned' parameter must be at most 'clients' (5). Got 6."),
    ({"client-eval": True}, "'client-eval' needs each client's own test part"),
    (ROBUST | {"weighting": "examples"}, "'weighting' examples would be ignored"),
    (ROBUST | {"weighting": "score"}, "'weighting' score would be ignored"),
    (
        ROBUST | {"solver": "scaffold"},
        "Set 'solver' to fedprox or sgd, or 'aggregation' to mean: a robust 'aggregation' does not protect the extra "
        "state that SCAFFOLD averages.",
    ),
    (ROBUST | {"solver": "fednova"}, "the extra state that FedNova averages."),
    (
        ROBUST | {"model": "resnet9", "calibration-form": "sequential"},
        "Set 'calibration-form' to average, or 'aggregation' to mean: ",
    ),
    (
        {"entry-malicious": 1},
        "Set 'aggregation' to median, trimmed-mean, krum or multi-krum, or 'entry-malicious' to 0",
    ),
    (
        {"solver": "feddyn", "server-optimizer": "mean"},
        "Set 'compressor' to none (it is top-k), or choose another 'solver': FedDyn keeps each client's gradient, "
        "which is the sum of its whole updates.",
    ),
    (
        {"solver": "feddyn", "server-optimizer": "mean", "compressor": "none", "value-bits": 8},
        "Set 'value-bits' to 32 (it is 8), or choose another 'solver': FedDyn keeps",
    ),
    (
        {"solver": "feddyn", "compressor": "none"},
        "Set 'server-optimizer' to mean (it is momentum), or choose another 'solver': FedDyn has its own server step.",
    ),
    (
        {"solver": "fednova", "optimizer": "adamw"},
        "Set 'optimizer' to sgd (it is adamw), or choose another 'solver': FedNova works only with plain SGD.",
    ),
    (
        {"solver": "fednova", "error-feedback-scheme": "ef21"},
        "Set 'error-feedback-scheme' to ef14, or choose another 'solver': FedNova needs updates of one round, and ef21 "
        "mixes those of several rounds.",
    ),
    ({"compressor": "qsgd", "value-bits": 8}, "qsgd rounds its values itself, as 'qsgd-levels' says."),
    ({"compressor": "none", "error-feedback-scheme": "ef21"}, "Choose another 'compressor' than none, or set"),
    ({"error-feedback-scheme": "ef21", "error-feedback": False}, "Set 'error-feedback' to true, or"),
    (ROBUST | {"aggregation": "krum", "krum-malicious": 2, "cohort": 6}, "Set 'cohort' to at least 7 (it is 6)"),
    (
        {"dp-clip-norm": 1.0},
        "Set 'strategy' to random or full (it is hetero-select), 'weighting' to uniform (it is method), or",
    ),
    (PRIVATE | {"aggregation": "median"}, "Set 'aggregation' to mean (it is median)"),
    (PRIVATE | {"solver": "scaffold"}, "Set 'solver' to fedprox or sgd (it is scaffold)"),
    (PRIVATE | {"participation": "isp", "holdout-fraction": 0.2}, "Set 'participation' to fixed or adafl-full"),
    (PRIVATE | {"over-selection": 0.5}, "Set 'over-selection' to 0.0 (it is 0.5)"),
    (PRIVATE | {"min-returned": 2}, "Set 'min-returned' to 1 (it is 2)"),
    (PRIVATE | {"round-deadline-s": 9.0}, "Set 'round-deadline-s' to 0.0 (it is 9.0)"),
    (PRIVATE | {"links": "measured"}, "Set 'links' to simulated (it is measured)"),
    (PRIVATE | {"link-coupling": "inverted-loss"}, "Set 'link-coupling' to independent"),
    (PRIVATE | {"link-cap": "round"}, "Set 'link-cap' to transfer or none (it is round)"),
    (PRIVATE | {"dp-delta": 0.06}, "The 'dp-delta' parameter must be at most 1 / 'clients', 0.05. Got 0.06."),
    ({"participation": "sometimes"}, "'participation' parameter must be one of"),
    (SEARCHING, "'holdout-fraction' above 0"),
    (SEARCHING | {"isp-loss": "surrogate"}, "'surrogate-path'"),
    (SEARCHING | {"participation": "isp-ri", "surrogate-path": "x.npz"}, "'isp-loss'"),
    (SEARCHING | {"surrogate-path": "x.npz", "surrogate-examples": 9}, "not both"),
    ({"surrogate-examples": 9, "partition": "own", "clients": 1, "cohort": 1}, "no node has the whole training set"),
    ({"validation-fraction": 0.1, "partition": "own", "clients": 1, "cohort": 1}, "Set 'validation-fraction' to 0"),
    (SEARCHING | {"over-selection": 0.3, "holdout-fraction": 0.2}, "Set 'over-selection' to 0"),
    ({"strategy": "fed-cbs", "share-label-counts": False}, "Set 'share-label-counts' to true"),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_combinations_that_cannot_be_run_are_refused(values, sentence):
    with pytest.raises(ConfigError) as error:
        resolve(values)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "values",
    [
        {"client-eval": True, "holdout-fraction": 0.2},
        ROBUST,
        PRIVATE,
        PRIVATE | {"strategy": "full", "dp-delta": 0.05},
        {"over-selection": 0.5, "min-returned": 2, "round-deadline-s": 9.0, "dp-delta": 0.5},
        SEARCHING | {"holdout-fraction": 0.2},
        SEARCHING | {"isp-loss": "surrogate", "surrogate-examples": 100},
        {"strategy": "random", "surrogate-examples": 100},
        {"strategy": "oort", "share-label-counts": False},
    ],
)
def test_their_neighbours_can_be_run(values):
    resolve(values)


def test_a_method_that_decides_its_own_cohort_refuses_every_policy_but_fixed():
    values = {"strategy": "full", "holdout-fraction": 0.2}
    assert resolve(values).participation.participation == "fixed"
    for policy in ("isp", "isp-ri", "adafl-full", "decay"):
        with pytest.raises(ConfigError, match="the strategy full decides itself how many clients train"):
            resolve(values | {"participation": policy})


@pytest.mark.parametrize("policy", ["isp", "isp-ri", "adafl-full", "decay"])
def test_a_policy_sets_the_pool_of_a_terraform_round(policy):
    values = {"strategy": "terraform", "holdout-fraction": 0.2, "participation": policy}
    assert resolve(values | {"terraform.count": "rounds"}).participation.participation == policy
    with pytest.raises(ConfigError, match=r"Set 'terraform\.count' to rounds"):
        resolve(values)


@pytest.mark.parametrize(
    ("name", "why"),
    [("adasample", "the weights of its draws"), ("delta", "the weights of its draws"), ("terraform", "it sizes its")],
)
def test_over_selection_is_refused_by_methods_that_need_all_that_they_select(name, why):
    with pytest.raises(ConfigError, match=f"Set 'over-selection' to 0, .* than {name}: {why}"):
        resolve({"strategy": name, "over-selection": 0.5})


@pytest.mark.parametrize("name", STRATEGIES)
def test_methods_that_read_classes_refuse_data_without_them(name):
    config = resolve({"strategy": name})
    validate_task(config.strategy, config.method, "classification")
    for task in ("multi-label", "regression"):
        if name in ("hetero-select-stable", "fed-cbs", "hics-fl"):
            with pytest.raises(
                ConfigError,
                match=rf"another 'strategy'.* strategy {name} reads .*, and a {task} data set has no classes",
            ):
                validate_task(config.strategy, config.method, task)
        else:
            validate_task(config.strategy, config.method, task)


@pytest.mark.parametrize("magnitude", ["bias", "weights"])
def test_terraform_reads_the_biases_of_any_output_layer(magnitude):
    config = resolve({"strategy": "terraform", "terraform.magnitude": magnitude})
    for task in ("classification", "multi-label", "regression"):
        validate_task(config.strategy, config.method, task)
