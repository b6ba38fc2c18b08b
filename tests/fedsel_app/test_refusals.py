"""Refusals: settings that cannot run, and the sentence with which `resolve` refuses them.

One row for each refusal, in the table of its subject: settings, then words of the sentence. `RUNNABLE` has their
neighbours: settings at the edge of a refusal, which run.
"""

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from strategies import STRATEGIES

ROBUST = {"strategy": "random", "aggregation": "median", "error-feedback": False}
COMMON = {"compressor": "common-k"}
MASKED = {"preset": "masked"}
PRIVATE = {"strategy": "random", "dp-clip-norm": 1.0, "weighting": "uniform"}
SEARCHING = {"strategy": "random", "participation": "isp"}
BUFFERED = {"strategy": "random", "waiting": "buffered", "cohort": 5}
OWN = {"partition": "own", "clients": 1, "cohort": 1}
OWN_METHOD = "tests.fedsel_app.wiring.test_configuration:LowestIds"
LOCAL = {"local-layers": "head", "client-eval": True, "holdout-fraction": 0.2}
POWER = {"strategy": "power-of-choice"}
LARGEST = 3.4028234663852886e38
"""Largest number of float32."""

NAMES = [
    ({"preset": "papr"}, "There is no preset 'papr'. Did you mean 'paper'? `fedsel presets` lists all of them."),
    ({"strategy": "hetro-select"}, "or package.module:name. Got 'hetro-select'. Did you mean 'hetero-select'?"),
    ({"loacl-steps": 3}, "There is no setting 'loacl-steps'. Did you mean 'local-steps'?"),
    ({"xyz": 3}, "There is no setting 'xyz'. `fedsel settings --all` lists all of them."),
    ({"strategy": f"{__name__}:RowsOf"}, "has no such function or class"),
    ({"strategy": "tests.support.updates:sparse"}, "must name a subclass of SelectionStrategy"),
    ({"strategy": "no_such_module:Mine"}, "cannot be imported"),
]
"""Names of settings, strategies, presets."""

VALUES = [
    *[
        ({"attack": "ipm", "attackers": named}, f"or ascending partition ids such as 4,9. Got {named!r}.")
        for named in ("1.5", "4,2", "")
    ],
    ({"server-momentum": 1.0}, "The 'server-momentum' parameter must be in [0, 1). Got 1."),
    ({"server-momentum": float("nan")}, "The 'server-momentum' parameter must be in [0, 1). Got nan."),
    ({"server-lr": float("inf")}, "The 'server-lr' parameter must be in (0, ∞). Got inf."),
    ({"server-lr": "0.5"}, "The 'server-lr' parameter must be a number. Got '0.5'."),
    ({"rounds": True}, "The 'rounds' parameter must be a whole number. Got True."),
    ({"resume": 1}, "The 'resume' parameter must be true or false. Got 1."),
    ({"solver": 5}, "The 'solver' parameter must be text. Got 5."),
    ({"waiting": "green"}, "The 'waiting' parameter must be one of synchronous, buffered, asynchronous. Got 'green'."),
    *[
        ({key: 10**9}, f"The '{key}' parameter must be in [{low}, 1e+07]. Got 1000000000.")
        for key, low in {"local-steps": 0, "local-epochs": 0, "isp-draws": 1, "calibration-batches": 1}.items()
    ],
    *[
        ({key: bits}, f"The '{key}' parameter must be ")
        for key in ("probe-bits", "value-bits")
        for bits in (3, 5, 9, 17, 31, 33)
    ],
    *[
        ({key: LARGEST * 1.001}, f"'{key}' parameter must be a number of float32")
        for key in ("lr", "mu", "weight-decay")
    ],
]
"""One value of the wrong type, out of its bounds, or none of its choices."""

GROUPS = [
    ({"example-clip": 0.99}, "'example-clip' parameter must be 0 or at least 1. Got 0.99"),
    ({"engine": "inline", "workers": 1}, "The 'engine' inline has no workers"),
    ({"metrics": "f1-macro, aurok"}, "Got 'aurok'. Did you mean 'auroc'?"),
    ({"clients": 5, "cohort": 6}, "The 'cohort' parameter must be at most 'clients' (5). Got 6."),
    ({"availability": "trace"}, "Set 'availability-trace' to a CSV file"),
    ({"uplink-min-bits-per-s": 5.1, "uplink-max-bits-per-s": 5.0}, "must be at most 'uplink-max-bits-per-s'"),
    ({"step-min-s": 0.6}, "must be at most 'step-max-s'"),
    ({"spread": "log-normal", "step-min-s": 0.0}, "Set 'step-min-s' above 0"),
    *[
        ({"alphas": alphas}, f"'alphas' parameter must be numbers above 0, separated by commas. Got '{alphas}'")
        for alphas in ("", "0.1;0.2", "0.1,-1", "nan")
    ],
    *[
        ({"class-weights": weights}, "'class-weights' parameter must be balanced, or a number above 0 for each")
        for weights in ("heavy", "1,0", "1,nan")
    ],
    ({"task": ":C"}, "'task' parameter must be package.module:Class"),
    ({"data": "cifar-10"}, "Did you mean 'cifar10'?"),
    ({"data": "hf:a/b/c"}, "as hf:NAME or hf:OWNER/NAME"),
    ({"data": "hf:../secret"}, "'data' hf and its path in 'data-path'"),
    ({"data": "hf"}, "needs the path of a folder that `datasets` saved"),
    ({"data": "csv"}, "needs the file's path"),
    ({"data": "mnist", "data-path": "x.csv"}, "does not read x.csv: set data=csv"),
    ({"data": "x.npz"}, "set data=npz and data-path=x.npz"),
    ({"data": "digits", "data-arguments": "seed=1"}, "Leave out the 'data-arguments': the 'data' digits has none"),
    ({"data": "hf:a", "data-arguments": "column=1"}, "have no 'column'. They may be subset, train"),
    ({"data": "hf:a", "data-arguments": 'input="x"'}, "'input' of 'data-arguments' must be a list of names"),
    ({"data": "hf:a", "data-arguments": "label=x"}, "text in quotes, such as label="),
    (
        {"local-epochs": 1},
        "Now local-steps=50 and local-epochs=1: also set local-steps=0 for epochs, or local-epochs=0",
    ),
]
"""Values of one group that do not fit together."""

COMBINATIONS = [
    ({"clients": 5, "cohort": 2, "min-returned": 6}, "'min-returned' parameter must be at most 'clients' (5). Got 6."),
    ({"client-eval": True}, "'client-eval' needs each client's own test part"),
    ({"local-layers": "head"}, "Set 'client-eval' to true, or 'local-layers' to empty"),
    (LOCAL | {"initial-model": "runs/a"}, "Set 'initial-model' to empty, or"),
    (LOCAL | {"validation-fraction": 0.1, "attack": "backdoor"}, "'validation-fraction' to 0 and another 'attack'"),
    (LOCAL | SEARCHING | {"isp-loss": "surrogate", "surrogate-examples": 9}, "Set 'isp-loss' to clients, or"),
    ({"attack": "alie", "attackers": "2,20"}, "The 'attackers' must be below 'clients' (20). Got '2,20'."),
    ({"attack": "alie", "error-feedback-scheme": "ef21"}, "Set 'error-feedback-scheme' to ef14, or 'attack'"),
    ({"attack": "random", "compressor": "common-k"}, "all clients of common-k send the entries"),
    (BUFFERED | {"attack": "ipm"}, "the attackers of ipm know the updates of a cohort"),
    (ROBUST | {"weighting": "examples"}, "'weighting' examples would be ignored"),
    (
        ROBUST | {"solver": "scaffold"},
        "Set 'solver' to fedprox or sgd, or 'aggregation' to mean: a robust 'aggregation' does not protect the extra "
        "state that SCAFFOLD averages.",
    ),
    (
        ROBUST | {"model": "resnet9", "calibration-form": "sequential"},
        "Set 'calibration-form' to average. If you trust all clients, set 'max-update-norm' to 0 and",
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
    (COMMON | {"value-bits": 16}, "common-k rounds its values itself, as 'ring-bits' says."),
    (COMMON | {"error-feedback-scheme": "ef21"}, "Set 'error-feedback-scheme' to ef14, or choose another"),
    (COMMON | {"waiting": "buffered"}, "Set 'waiting' to synchronous, or 'compressor' to top-k, rand-k, qsgd or none"),
    (COMMON | {"ring-bits": 12}, "The 'ring-bits' parameter must be 6, 8, 16, 24 or 32. Got 12."),
    (COMMON | {"ring-bits": 8, "clients": 200, "cohort": 128}, "Set 'ring-bits' to at least 16 (it is 8)"),
    (COMMON | {"ring-bits": 8, "clients": 128, "strategy": "full"}, "the sum of 128 clients has no room"),
    (COMMON | {"strategy": "flexcom"}, "Set 'compressor' to top-k or rand-k, or choose another 'strategy': flexcom"),
    (PRIVATE | COMMON, "Set 'compressor' to top-k or rand-k or qsgd or none (it is common-k)"),
    (MASKED | {"compressor": "top-k"}, "Set 'compressor' to common-k (it is top-k), or 'secure-sums' to none"),
    (MASKED | {"aggregation": "median"}, "Set 'aggregation' to mean (it is median), or 'secure-sums' to none"),
    (MASKED | {"weighting": "score"}, "Set 'weighting' to uniform or examples (it is score), or 'secure-sums' to"),
    (
        MASKED | {"weighting": "examples", "strategy": "adasample", "clear-number": "norm"},
        "Set 'weighting' to uniform, or 'secure-sums' to none: the strategy adasample reads the norms of updates",
    ),
    (MASKED | {"max-update-norm": 1.0}, "Set 'max-update-norm' to 0, or 'secure-sums' to none"),
    (MASKED | {"solver": "scaffold"}, "Set 'solver' to fedprox or sgd, or 'secure-sums' to none: SCAFFOLD sends more"),
    (MASKED | {"participation": "isp", "holdout-fraction": 0.2}, "Set 'participation' to a schedule, or 'secure-sums'"),
    *(
        (MASKED | {"strategy": name}, f"Choose another 'strategy' than {name}, or 'secure-sums' to none")
        for name in ("optrate", "delta")
    ),
    (MASKED | {"strategy": "adafl"}, "Set 'adafl.distance' to norm, or choose another 'strategy' than adafl, or"),
    (MASKED | {"strategy": "terraform"}, "Set 'terraform.magnitude' to loss or norm, or choose another 'strategy'"),
    *(
        (MASKED | {"attack": attack}, f"or 'attack' to another than {attack}: all clients of common-k send the entries")
        for attack in ("sign-flip", "alie")
    ),
    (MASKED | {"strategy": "adasample"}, "Set 'clear-number' to norm, or 'secure-sums' to none"),
    (MASKED | {"clear-number": "norm"}, "Set 'clear-number' to none, or 'secure-sums' to none: the strategy random"),
    (MASKED | {"cohort": 2}, "Set 'cohort' to at least 3 (it is 2), or 'secure-sums' to none"),
    (MASKED | {"least-cohort": 2}, "The 'least-cohort' parameter must be in [3, ∞). Got 2."),
    (PRIVATE | COMMON | {"secure-sums": "masks"}, "'secure-sums' to none (it is masks)"),
    ({"compressor": "none", "error-feedback-scheme": "ef21"}, "Choose another 'compressor' than none, or set"),
    ({"error-feedback-scheme": "ef21", "error-feedback": False}, "Set 'error-feedback' to true, or"),
    (ROBUST | {"aggregation": "krum", "krum-malicious": 2, "cohort": 6}, "Set 'cohort' to at least 7 (it is 6)"),
    (
        {"dp-clip-norm": 1.0},
        "Set 'strategy' to random or full (it is hetero-select), 'weighting' to uniform (it is method), or",
    ),
    (PRIVATE | {"aggregation": "median"}, "Set 'aggregation' to mean (it is median)"),
    (PRIVATE | {"participation": "isp", "holdout-fraction": 0.2}, "Set 'participation' to fixed or adafl-full"),
    *[
        (PRIVATE | {"strategy": name}, f"Set 'strategy' to random or full (it is {name})")
        for name in (*STRATEGIES, OWN_METHOD)
        if name not in ("random", "full")
    ],
    (PRIVATE | {"dp-delta": 0.06}, "The 'dp-delta' parameter must be at most 1 / 'clients', 0.05. Got 0.06."),
    ({"participation": "sometimes"}, "'participation' parameter must be one of"),
    (SEARCHING, "'holdout-fraction' above 0"),
    (SEARCHING | {"isp-loss": "surrogate"}, "'surrogate-path'"),
    (SEARCHING | {"participation": "isp-ri", "surrogate-path": "x.npz"}, "'isp-loss'"),
    (SEARCHING | {"surrogate-path": "x.npz", "surrogate-examples": 9}, "not both"),
    (OWN | {"surrogate-examples": 9}, "no node has the whole training set"),
    (OWN | {"validation-fraction": 0.1}, "Set 'validation-fraction' to 0"),
    (SEARCHING | {"over-selection": 0.3, "holdout-fraction": 0.2}, "Set 'over-selection' to 0"),
    ({"strategy": "fed-cbs", "share-label-counts": False}, "Set 'share-label-counts' to true"),
    ({"strategy": "flexcom", "compressor": "qsgd"}, "Set 'compressor' to top-k or rand-k"),
    ({"strategy": "optrate", "compressor": "rand-k"}, "Set 'compressor' to top-k: the strategy optrate"),
    (POWER | {"cohort": 2, "power-of-choice.candidates": 1}, "must be at least 'cohort' (2). Got 1."),
    (POWER | {"power-of-choice.loss": "test"}, "Set 'holdout-fraction' above 0: the strategy power-of-choice measures"),
    (
        POWER | {"power-of-choice.loss": "test", "power-of-choice.variant": "rpow-d", "holdout-fraction": 0.2},
        "rpow-d ranks by the last training losses",
    ),
    *[
        (
            {"strategy": "full", "holdout-fraction": 0.2, "participation": policy},
            "the strategy full decides itself how many clients train",
        )
        for policy in ("isp", "adafl-full")
    ],
    (
        {"strategy": "terraform", "holdout-fraction": 0.2, "participation": "isp"},
        "Set 'terraform.count' to rounds",
    ),
    *[
        ({"strategy": name, "over-selection": 0.5}, f"'strategy' than {name}: {why}")
        for name, why in {
            "delta": "the weights of its draws",
            "terraform": "it sizes its",
        }.items()
    ],
]
"""Settings of several groups that do not fit together."""

WAITING = [
    (BUFFERED | {"participation": "isp", "holdout-fraction": 0.2}, "'participation'"),
    (BUFFERED | {"solver": "scaffold"}, "'solver' to fedprox or sgd"),
    (BUFFERED | {"solver": "feddyn", "compressor": "none", "server-optimizer": "mean"}, "FedDyn"),
    (BUFFERED | {"solver": "fednova"}, "FedNova"),
    (BUFFERED | {"over-selection": 0.5}, "'over-selection'"),
    (BUFFERED | {"round-deadline-s": 5.0}, "'round-deadline-s'"),
    (BUFFERED | {"buffer-size": 6}, "'buffer-size' to at most 'cohort'"),
    (BUFFERED | {"min-returned": 3}, "'min-returned' to at most 2"),
    (BUFFERED | {"aggregation": "median"}, "'staleness' to constant"),
    (BUFFERED | {"aggregation": "krum", "staleness": "constant"}, "'buffer-size' to at least 5"),
    (BUFFERED | {"waiting": "asynchronous", "server-optimizer": "momentum"}, "'server-optimizer' to mean"),
    (BUFFERED | {"waiting": "asynchronous", "server-optimizer": "mean", "server-lr": 1.5}, "'server-lr' to at most 1"),
    (
        BUFFERED | {"waiting": "asynchronous", "aggregation": "median", "server-optimizer": "mean"},
        "'aggregation' to mean",
    ),
    (BUFFERED | {"dp-clip-norm": 1.0, "weighting": "uniform"}, "'waiting' to synchronous"),
    (BUFFERED | {"strategy": "power-of-choice", "power-of-choice.candidates": 8}, "'power-of-choice.candidates' to 0"),
]
"""Servers that do not wait for the whole cohort."""

TABLES = [NAMES, VALUES, GROUPS, COMBINATIONS, WAITING]


@pytest.mark.parametrize(("settings", "sentence"), [row for table in TABLES for row in table])
def test_settings_that_cannot_run_are_refused_with_what_to_do(settings, sentence):
    with pytest.raises(ConfigError) as error:
        resolve(settings)
    assert sentence in str(error.value)


RUNNABLE = [
    {"loss-clip": 1.0},
    {"engine": "ray", "workers": 1},
    {"metrics": "f1-macro, auroc"},
    {"clients": 5, "cohort": 5},
    {"availability": "trace", "availability-trace": "a.csv"},
    {"uplink-min-bits-per-s": 5.0, "uplink-max-bits-per-s": 5.0},
    {"spread": "log-normal", "step-min-s": 0.1, "step-max-s": 0.1},
    {"alphas": "0.1, 2"},
    {"class-weights": "1,9"},
    {"data": "hf:owner/name", "data-path": ""},
    *[{"probe-bits": bits, "value-bits": bits} for bits in (4, 8, 16, 32)],
    {"lr": LARGEST, "mu": LARGEST, "weight-decay": LARGEST},
    ROBUST,
    LOCAL | SEARCHING,
    {"attack": "label-flip", "attackers": "0,19", "error-feedback-scheme": "ef21"},
    BUFFERED | {"attack": "sign-flip", "attackers": "1"},
    PRIVATE,
    PRIVATE | {"strategy": "full", "dp-delta": 0.05},
    {"over-selection": 0.5, "min-returned": 2, "round-deadline-s": 9.0, "dp-delta": 0.5},
    SEARCHING | {"holdout-fraction": 0.2},
    SEARCHING | {"isp-loss": "surrogate", "surrogate-examples": 100},
    {"strategy": "oort", "share-label-counts": False},
    POWER | {"power-of-choice.loss": "test", "holdout-fraction": 0.2},
    {"strategy": "full", "holdout-fraction": 0.2},
    {"strategy": "terraform", "terraform.count": "rounds", "holdout-fraction": 0.2, "participation": "isp"},
]


@pytest.mark.parametrize("settings", RUNNABLE)
def test_their_neighbours_can_run(settings):
    resolved = resolve(settings).values()
    assert {key: resolved[key] for key in settings} == settings
