"""Arguments of Flower's own strategies that fedsel's does not have, and the sentences on what to write instead."""

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import ArrayRecord

from fedsel_app.config import DECLARED, ConfigError

MODEL = "Give the initial model as start's 'initial_arrays', or in the legacy API as 'parameters' of strategy(...)."
TRAIN_CONFIG = (
    "Give a function of the round as 'train_config_fn' of strategy(...), and a config for all rounds as start's "
    "'train_config'; in the legacy API, either is 'fit_config' of strategy(...)."
)
EVALUATE_CONFIG = (
    "Give a function of the round as 'evaluate_config_fn' of strategy(...), and a config for all rounds as start's "
    "'evaluate_config'; in the legacy API, either is 'evaluate_config' of strategy(...)."
)
ALONE = (
    "Leave Flower's own strategies, wrappers and secure aggregation out: fedsel's strategy selects the clients, checks "
    "each update and aggregates them itself, and what another strategy changes would be lost. A round's config comes "
    "from 'train_config_fn'; 'evaluate_fn' and start's 'should_stop' see the model of each round; differential privacy "
    "is 'dp-clip-norm' and 'dp-noise-multiplier'."
)
PROXIMAL = (
    "Leave {!r} out, and send it to your clients, as FedProx does: "
    "start(..., train_config=ConfigRecord({{'proximal-mu': 0.1}})), or in the legacy API "
    "strategy(..., fit_config={{'proximal_mu': 0.1}}). The proximal term is in the training of your clients."
)
"""Sentence on the proximal term, whose strength is also an argument of other names."""
IN_PLACE = {
    "fraction_train": "cohort",
    "fraction_fit": "cohort",
    "min_train_nodes": "cohort",
    "min_fit_clients": "cohort",
    "min_available_nodes": "min_available_clients",
    "num_rounds": "rounds",
    "eta": "server_lr",
    "server_learning_rate": "server_lr",
    "beta_1": "server_beta1",
    "beta_2": "server_beta2",
    "tau": "server_tau",
    "beta": "trim_share",
    "num_malicious_nodes": "krum_malicious",
    "num_malicious_clients": "krum_malicious",
}
"""Argument of Flower's strategies -> fedsel's argument."""
WORDS: Mapping[str, str] = {
    **dict.fromkeys(("initial_arrays", "initial_parameters"), MODEL),
    **dict.fromkeys(("on_fit_config_fn", "train_config"), TRAIN_CONFIG),
    "on_evaluate_config_fn": EVALUATE_CONFIG,
    **dict.fromkeys(("around", "strategy"), ALONE),
    "accept_failures": "Leave 'accept_failures' out: a client that fails is left out of its round, and 'min-returned' "
    "says how many updates a round needs at least.",
    **{name: PROXIMAL.format(name) for name in ("proximal_mu", "mu")},
    **{
        name: f"Give {ours!r} in place of {name!r}." + " It is the number of clients in a round." * (ours == "cohort")
        for name, ours in IN_PLACE.items()
    },
    **dict.fromkeys(
        ("eta_l", "client_learning_rate"),
        "Leave the learning rate of the clients out, and send it to them: start(..., train_config=...), or in the "
        "legacy API strategy(..., fit_config=...).",
    ),
    "q": "Leave 'q' out: fedsel has no QFedAvg.",
    "num_nodes_to_select": "Leave 'num_nodes_to_select' out: aggregation='multi-krum' takes all but 'krum_malicious'.",
}
"""Argument -> what to write instead."""
ROBUST = "aggregation='{}', update_clip=0"
ADAPTIVE = "server_optimizer='{}'"
STRATEGIES: Mapping[str, str] = {
    "fedavgm": "server_optimizer='momentum', server_momentum=0.9",
    **{name: ADAPTIVE.format(name) for name in ("fedadam", "fedyogi", "fedadagrad")},
    "fedopt": ADAPTIVE.format("fedadam"),
    "fedprox": "train_config=ConfigRecord({'proximal-mu': 0.1}) of start",
    "fedmedian": ROBUST.format("median"),
    "fedtrimmedavg": ROBUST.format("trimmed-mean") + ", trim_share=0.2",
    "krum": ROBUST.format("krum") + ", krum_malicious=1",
    "multikrum": ROBUST.format("multi-krum") + ", krum_malicious=1",
    "faulttolerantfedavg": "min_returned=2",
    **dict.fromkeys(("bulyan", "qfedavg", "fedxgbbagging", "fedxgbcyclic"), ""),
}
"""Flower's strategies in lower case -> arguments beside strategy("random", ...); empty: fedsel has nothing like it."""
SAME = {
    "min_evaluate_clients": "min_evaluate_nodes",
    "fit_metrics_aggregation_fn": "train_metrics_aggr_fn",
    "evaluate_metrics_aggregation_fn": "evaluate_metrics_aggr_fn",
}
"""Options of the legacy API -> their names in the Message API."""
INSTEAD = "Give {!r} in place of {!r}, which is of Flower's other API."
LEGACY = {
    "parameters": MODEL,
    "fit_config": TRAIN_CONFIG,
    "evaluate_config": EVALUATE_CONFIG,
    "evaluate_fn": "Give 'evaluate_fn' to start, with the arguments (round, arrays).",
    **{name: INSTEAD.format(other, name) for name, other in SAME.items()},
}
"""Options of the legacy API -> what to write instead in the Message API."""
NAMED = ("arrayrecord_key", "configrecord_key", "weighted_by_key", "loss_key")
MESSAGE = {
    "train_config_fn": TRAIN_CONFIG,
    "evaluate_config_fn": EVALUATE_CONFIG,
    **{other: INSTEAD.format(name, other) for name, other in SAME.items()},
    **{name: f"Leave {name!r} out: in Flower's legacy API, this has no name of yours." for name in NAMED},
}
"""Options of the Message API -> what to write instead in the legacy API."""


def refuse_strategy(name: str) -> None:
    """Raise ConfigError for the name of one of Flower's own strategies that is not a method of fedsel."""
    word = "".join(letter for letter in name.lower() if letter.isalnum())
    if STRATEGIES.get(word):
        raise ConfigError(f"In place of Flower's {name!r}, write strategy('random', ...) with {STRATEGIES[word]}.")
    if word in STRATEGIES:
        raise ConfigError(f"Keep Flower's {name!r}: fedsel has no such rule, and combines only arrays of floats.")


def refuse_options(options: Iterable[str], words: Mapping[str, str] = WORDS) -> None:
    """Raise ConfigError for an option that only Flower's own strategies have, or the other API: a name in `words`."""
    for name in options:
        if name in words:
            raise ConfigError(words[name])


def refuse_arguments(others: Iterable[str], arguments: Iterable[str], options: Iterable[str]) -> None:
    """Raise ConfigError if `start` got arguments that it does not have.

    Parameters
    ----------
    others : these arguments
    arguments, options : the arguments of `start`, and the options of `strategy`
    """
    refuse_options(others)
    for name in others:
        if name in options or name.replace("_", "-") in DECLARED:
            raise ConfigError(f"Give {name!r} to strategy(...), and leave it out of start.")
        raise ConfigError(f"Leave {name!r} out of start. Its arguments are {', '.join(arguments)}.")


def refuse_other_types(initial_arrays: object, configs: Mapping[str, Any]) -> None:
    """Raise ConfigError for arguments of `start` of other types: a model as a list, or a config as a function."""
    if not isinstance(initial_arrays, ArrayRecord):
        raise ConfigError("Give start's 'initial_arrays' as Flower's ArrayRecord, such as ArrayRecord(list_of_arrays).")
    for name, config in configs.items():
        if config is not None and not isinstance(config, Mapping):
            raise ConfigError({"train_config": TRAIN_CONFIG, "evaluate_config": EVALUATE_CONFIG}[name])
