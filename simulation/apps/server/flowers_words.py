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
WORDS: Mapping[str, str] = {
    **dict.fromkeys(("initial_arrays", "initial_parameters"), MODEL),
    **dict.fromkeys(("on_fit_config_fn", "train_config"), TRAIN_CONFIG),
    "on_evaluate_config_fn": EVALUATE_CONFIG,
    **dict.fromkeys(("around", "strategy"), ALONE),
    "accept_failures": "Leave 'accept_failures' out: a client that fails is left out of its round, and 'min-returned' "
    "says how many updates a round needs at least.",
}
"""Argument -> what to write instead."""
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


def refuse_options(options: Iterable[str]) -> None:
    """Raise ConfigError for an argument of `strategy` that only Flower's own strategies have."""
    for name in options:
        if name in WORDS:
            raise ConfigError(WORDS[name])


def refuse_other_api(options: Iterable[str], words: Mapping[str, str]) -> None:
    """Raise ConfigError for an option of the other API, which has no effect in this one: a name in its `words`."""
    for name in options:
        if name in words:
            raise ConfigError(words[name])


def refuse_arguments(others: Iterable[str], own: Iterable[str], options: Iterable[str]) -> None:
    """Raise ConfigError if `start` got arguments that it does not have.

    Parameters
    ----------
    others : these arguments
    own, options : the arguments of `start`, and the options of `strategy`
    """
    refuse_options(others)
    for name in others:
        if name in options or name.replace("_", "-") in DECLARED:
            raise ConfigError(f"Give {name!r} to strategy(...), and leave it out of start.")
        raise ConfigError(f"Leave {name!r} out of start. Its arguments are {', '.join(own)}.")


def refuse_other_types(initial_arrays: object, configs: Mapping[str, Any]) -> None:
    """Raise ConfigError for arguments of `start` of other types: a model as a list, or a config as a function."""
    if not isinstance(initial_arrays, ArrayRecord):
        raise ConfigError("Give start's 'initial_arrays' as Flower's ArrayRecord, such as ArrayRecord(list_of_arrays).")
    for name, config in configs.items():
        if config is not None and not isinstance(config, Mapping):
            raise ConfigError({"train_config": TRAIN_CONFIG, "evaluate_config": EVALUATE_CONFIG}[name])
