"""Names of Flower's own strategies and of their arguments that fedsel's does not have, and what to write instead."""

from collections.abc import Iterable, Mapping

from fedsel_app.config import ConfigError
from fedsel_app.imports import LEGACY

MODEL = "Give the initial model as start's 'initial_arrays'."
CONFIG = (
    "Give a config to start, as 'train_config' or 'evaluate_config', and a function of the round to strategy(...), as "
    "'train_config_fn' or 'evaluate_config_fn'."
)
PROXIMAL = (
    "The proximal term is in the training of your clients. Send them its strength, as FedProx does: "
    "start(..., train_config=ConfigRecord({'proximal-mu': 0.1}))."
)
ALONE = (
    "Leave Flower's own strategies, wrappers and secure aggregation out: fedsel's strategy selects the clients, checks "
    "each update and aggregates them itself, and what another strategy changes would be lost. Differential privacy is "
    "'dp-clip-norm' and 'dp-noise-multiplier'."
)
IN_PLACE = {
    **dict.fromkeys(("fraction_train", "min_train_nodes"), "cohort"),
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
OF_LEGACY: Mapping[str, str] = {
    **dict.fromkeys(("parameters", "fit_metrics_aggregation_fn", "evaluate_metrics_aggregation_fn"), LEGACY),
    **dict.fromkeys(("min_evaluate_clients", "accept_failures"), LEGACY),
    **{name: f"Give 'cohort' in place of {name!r}. {LEGACY}" for name in ("fraction_fit", "min_fit_clients")},
    **dict.fromkeys(("fit_config", "on_fit_config_fn", "on_evaluate_config_fn"), f"{CONFIG} {LEGACY}"),
    "initial_parameters": f"{MODEL} {LEGACY}",
}
"""Argument that only an app of Flower's legacy API has -> what to write instead."""
WORDS: Mapping[str, str] = {
    **OF_LEGACY,
    **{name: f"Give {ours!r} in place of {name!r}." for name, ours in IN_PLACE.items()},
    **dict.fromkeys(("train_config", "evaluate_config", "eta_l"), CONFIG),
    "initial_arrays": MODEL,
    "evaluate_fn": "Give 'evaluate_fn' to start.",
    "proximal_mu": PROXIMAL,
}
"""Argument -> what to write instead; an app of the legacy API is told first that it is one."""
ROBUST = "aggregation='{}', update_clip=0"
STRATEGIES: Mapping[str, str] = {
    "fedavgm": "server_optimizer='momentum', server_momentum=0.9",
    **{name: f"server_optimizer='{name}'" for name in ("fedadam", "fedyogi", "fedadagrad")},
    "fedprox": "train_config=ConfigRecord({'proximal-mu': 0.1}) of start",
    "fedmedian": ROBUST.format("median"),
    "fedtrimmedavg": ROBUST.format("trimmed-mean") + ", trim_share=0.2",
    "krum": ROBUST.format("krum") + ", krum_malicious=1",
    "multikrum": ROBUST.format("multi-krum") + ", krum_malicious=1",
    **dict.fromkeys(("bulyan", "qfedavg", "fedxgbbagging", "fedxgbcyclic"), ""),
}
"""Flower's strategies in lower case -> arguments beside strategy("random", ...); empty: fedsel has nothing like it."""


def refuse_strategy(name: str) -> None:
    """Raise ConfigError for the name of one of Flower's own strategies that is not a method of fedsel."""
    word = name.lower()
    if STRATEGIES.get(word):
        raise ConfigError(f"In place of Flower's {name!r}, write strategy('random', ...) with {STRATEGIES[word]}.")
    if word in STRATEGIES:
        raise ConfigError(f"Keep Flower's {name!r}: fedsel has no such rule, and combines only arrays of floats.")


def refuse_options(options: Iterable[str]) -> None:
    """Raise ConfigError for an option that only Flower's own strategies have."""
    given = {*options}
    for name, instead in WORDS.items():
        if name in given:
            raise ConfigError(instead)
