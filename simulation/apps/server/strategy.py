"""Strategy for a user's own ServerApp: any strategy of fedsel with the model and clients of the app.

`strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)` runs all rounds. For the names of Flower's own
strategies, and for their arguments that fedsel's does not have, a sentence says what to write instead.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedsel_app.config import ConfigError
from fedsel_app.config.settings import setting_value
from fedsel_app.imports import LEGACY
from simulation.apps.server.app_strategy import AppStrategy
from simulation.apps.server.settings import AppOptions

MODEL = "Give the initial model as start's 'initial_arrays'."
CONFIG = (
    "Give a config to start, as 'train_config' or 'evaluate_config', and a function of the round to strategy(...), as "
    "'train_config_fn' or 'evaluate_config_fn'."
)
PROXIMAL = (
    "The proximal term is in the training of your clients. Send them its strength, as FedProx does: "
    "start(..., train_config=ConfigRecord({'proximal-mu': 0.1}))."
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


def strategy(name: str, *, clients: int, cohort: int, out: str | Path | None = None, **options: Any) -> AppStrategy:
    """Build a Flower strategy for your own ServerApp and your own clients.

    Raises ConfigError if the settings cannot be run, or the folder cannot be written.

    Parameters
    ----------
    name : selection method, as `fedsel methods` lists them, or package.module:Class
    clients, cohort : number of clients (SuperNodes), and number of clients that train in a round
    out : folder of the records; None: no records. With `resume="auto"` the run in this folder is resumed, or starts if
        it has not yet started. `start` returns the result of a finished run.
    options : the fields of `AppOptions`, such as `train_config_fn`, and fedsel's settings with underscores instead of
        dashes: rounds (unless `start` gets them), seed, compressor, kept_fraction, links and so on, and the method's
        own settings. See docs/flower-app.md.
    """
    refuse_strategy(name)
    for word, instead in WORDS.items():
        if word in options:
            raise ConfigError(instead)
    names = {field.name for field in fields(AppOptions)}
    settings = {key: value for key, value in options.items() if key not in names}
    settings |= {"clients": clients, "cohort": cohort}
    settings = {key: setting_value(value) for key, value in settings.items()}
    if out is not None:
        settings["out"] = str(Path(out).expanduser().absolute())
    if resume := settings.get("resume"):
        if out is None:
            raise ConfigError("Set 'out', the folder of the run that 'resume' continues, or leave 'resume' out.")
        if resume != "auto":
            raise ConfigError(f"Set 'resume' to 'auto', or leave it out. Got {resume!r}.")
        settings["resume"] = (Path(str(settings["out"])) / "config.json").exists()
    return AppStrategy(name, settings, AppOptions(**{key: options[key] for key in options.keys() & names}))
