"""The resolved configuration: defaults, then a preset, then what the user set."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from fedsel_app.config import (
    GROUPS,
    ConfigError,
    RunConfig,
    Settings,
    SharedSettings,
    Value,
    read_groups,
    refuse_unknown,
)
from fedsel_app.config.plugins import unknown_name
from strategies import STRATEGIES, find_strategy
from strategies.aggregation import privacy, robust
from strategies.base import SelectionStrategy

PRESETS = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class AppConfig(SharedSettings):
    """Configuration of a run: every setting, checked."""

    method: Settings
    strategy: type[SelectionStrategy]

    @classmethod
    def from_values(cls, values: Mapping[str, Value]) -> Self:
        """Build from flat `values`; absent keys keep their defaults.

        Raises
        ------
        ConfigError
            For an unknown key or method, a value out of range, or settings that exclude one another.
        """
        strategy = find_strategy(str(values.get("strategy", RunConfig.strategy)))
        refuse_unknown(values, [*known_defaults(), *strategy.Config.keys(f"{strategy.name}.")])
        groups = read_groups(values)
        if groups["data"].data in ("synthetic", "regression") and groups["data"].synthetic_clients == 0:
            groups["data"] = replace(groups["data"], synthetic_clients=groups["run"].clients)
        method = strategy.Config.from_values(values, f"{strategy.name}.")
        config = cls(**groups, method=method, strategy=strategy)
        refuse_replies(config)
        refuse_client_eval(config)
        validate_combination(config)
        robust.refuse_unprotected_mean(config)
        privacy.refuse_unprotected(config)
        refuse_participation(config, strategy)
        refuse_hidden_labels(config, strategy, method)
        refuse_over_selection(config, strategy)
        strategy.check_settings(method, config)
        return config

    def values(self) -> dict[str, Value]:
        """Setting key -> value, the method's own settings included."""
        shared = {key: value for group in self.groups().values() for key, value in group.values().items()}
        return shared | self.method.values(f"{self.strategy.name}.")


def refuse_replies(settings: SharedSettings) -> None:
    """Raise ConfigError for more replies wanted than there are clients."""
    clients, least = settings.run.clients, settings.replies.min_returned
    if least > clients:
        raise ConfigError(f"The 'min-returned' parameter must be at most 'clients' ({clients}). Got {least}.")


def refuse_client_eval(settings: SharedSettings) -> None:
    """Raise ConfigError for an evaluation on test parts that no client has."""
    if settings.evaluation.client_eval and settings.data.holdout_fraction == 0:
        raise ConfigError("'client-eval' needs each client's own test part; set 'holdout-fraction' above 0.")


def refuse_hidden_labels(settings: SharedSettings, strategy: type[SelectionStrategy], method: Settings) -> None:
    """Raise ConfigError for a method that needs the label counts which clients keep to themselves."""
    if strategy.needs(method).label_counts and not settings.privacy.share_label_counts:
        raise ConfigError(
            f"The strategy {strategy.name} reads how many examples of each class a client has; set "
            "'share-label-counts' to true, or choose another strategy."
        )


def refuse_over_selection(settings: SharedSettings, strategy: type[SelectionStrategy]) -> None:
    """Raise ConfigError for over-selection where the cohort's size is searched for or is the method's own."""
    fixed = settings.participation.searches or not strategy.free_cohort
    if settings.replies.over_selection and fixed:
        raise ConfigError(
            "The cohort's size is found by trying or by the method here, and 'over-selection' would change it: "
            "set 'over-selection' to 0."
        )


def refuse_participation(settings: SharedSettings, strategy: type[SelectionStrategy]) -> None:
    """Raise ConfigError for a participation policy that the method rules out, or that has no loss to search by."""
    policy, isp = settings.participation, settings.isp
    if policy.searches and (isp.isp_loss == "surrogate") != bool(isp.surrogate_path):
        raise ConfigError(
            "The 'isp-loss' parameter surrogate and the file's path in 'surrogate-path' go together; set both, or "
            "set isp-loss to clients and no path."
        )
    if policy.participation != "fixed" and not strategy.free_cohort:
        raise ConfigError(
            f"The strategy {strategy.name} decides itself how many clients train, so a participation policy cannot. "
            "Set 'participation' to fixed."
        )
    if policy.searches and isp.isp_loss == "clients" and settings.data.holdout_fraction == 0:
        raise ConfigError(
            f"The participation policy {policy.participation} tests candidate models on the clients' own test parts; "
            "set 'holdout-fraction' above 0, or set 'isp-loss' to surrogate with a 'surrogate-path'."
        )


def refuse_task(strategy: type[SelectionStrategy], method: Settings, task: str) -> None:
    """Raise ConfigError for a method that reads classes where the data set has none: see `Dataset.task`."""
    needs = strategy.needs(method)
    if task != "classification" and (needs.label_counts or needs.class_biases):
        read = "how many examples of each class a client has" if needs.label_counts else "the biases of the classes"
        raise ConfigError(
            f"The strategy {strategy.name} reads {read}, and a {task} data set has no classes: "
            "choose another 'strategy', or 'data' for classification."
        )


def validate_combination(settings: SharedSettings) -> None:
    """Raise ConfigError for a solver, a compressor and a server optimiser that spoil one another."""
    training, compression = settings.training, settings.compression
    solver, compressor, optimizer = training.solver, compression.compressor, settings.server_optimizer.server_optimizer
    if compressor == "qsgd" and compression.value_bits < 32:
        raise ConfigError(
            "The 'compressor' qsgd rounds its values itself, as 'qsgd-levels' says: set 'value-bits' to 32, "
            "or choose another compressor."
        )
    if compression.ef21 and compression.lossless:
        raise ConfigError(
            "The 'error-feedback-scheme' ef21 has nothing to estimate where updates are sent whole, 'compressor' none: "
            "set 'compressor' to another, or 'error-feedback-scheme' to ef14."
        )
    if compression.error_feedback_scheme == "ef21" and not compression.error_feedback:
        raise ConfigError("The 'error-feedback-scheme' ef21 is one of error feedback; set 'error-feedback' to true.")
    if solver == "feddyn" and not compression.lossless:
        raise ConfigError(
            "The 'solver' feddyn needs the mean of what the clients remember, and the server knows it only from whole "
            f"updates; set 'compressor' to none and 'value-bits' to 32 instead of {compressor} and "
            f"{compression.value_bits}, or choose another solver."
        )
    if solver == "feddyn" and optimizer != "mean":
        raise ConfigError(
            "The 'solver' feddyn corrects the clients' mean model itself; set 'server-optimizer' to mean "
            f"instead of {optimizer}."
        )
    if solver in ("scaffold", "fednova") and training.optimizer != "sgd":
        raise ConfigError(
            f"The 'solver' {solver} reads a mean gradient off the sum of a client's SGD steps, and those of "
            f"{training.optimizer} are no multiples of gradients: set 'optimizer' to sgd, or choose another solver."
        )
    if solver == "fednova" and compression.ef21:
        raise ConfigError(
            "The 'solver' fednova divides each update by its steps, and the 'error-feedback-scheme' ef21 mixes updates "
            "of several rounds: set 'error-feedback-scheme' to ef14, or choose another solver."
        )


def known_defaults() -> dict[str, Value]:
    """Every setting of the app and of all its methods, with its default."""
    shared = {key: value for group in GROUPS.values() for key, value in group.defaults().items()}
    methods = {
        key: value for method in STRATEGIES.values() for key, value in method.Config.defaults(f"{method.name}.").items()
    }
    return {"preset": ""} | shared | methods


def documentation() -> dict[str, str]:
    """Every setting's meaning."""
    shared = {key: doc for group in GROUPS.values() for key, doc in group.documentation().items()}
    methods = {
        key: doc
        for method in STRATEGIES.values()
        for key, doc in method.Config.documentation(f"{method.name}.").items()
    }
    return {"preset": "named settings to start from: a name of `fedsel presets`, or a .toml file"} | shared | methods


def preset_names() -> list[str]:
    """The presets that come with fedsel."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str, above: tuple[Path, ...] = ()) -> dict[str, Value]:
    """The settings of a preset: one that comes with fedsel, or a TOML file of setting keys.

    A preset may start from another: ``base`` names it, and for a file it is sought beside the preset that names it.
    `above` are the presets that led here.

    Raises
    ------
    ConfigError
        If there is none, it cannot be read, it is not TOML, or it starts from itself.
    """
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise ConfigError(f"There is no preset file {path}.")
        raise unknown_name("preset", name, preset_names(), "a .toml file")
    if path.resolve() in above:
        raise ConfigError(f"The preset {path} starts from itself through 'base'; let one of that circle have none.")
    try:
        settings = flatten(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"The preset {path} cannot be read: {error}.") from error
    base = settings.pop("base", "")
    if not isinstance(base, str):
        raise ConfigError(f"The 'base' of the preset {path} must be the name of another preset. Got {base!r}.")
    if base.endswith(".toml"):
        base = str(path.parent / base)
    return (read_preset(base, (*above, path.resolve())) if base else {}) | settings


def flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, Value]:
    """Nested TOML tables -> keys joined by dots, as Flower does it."""
    flat: dict[str, Value] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            flat[prefix + key] = value
        else:
            raise ConfigError(f"The '{prefix}{key}' parameter must be true or false, a number or text. Got {value!r}.")
    return flat


def resolve(overrides: Mapping[str, Value]) -> AppConfig:
    """Defaults, then the preset that `overrides` may name, then the rest of `overrides`."""
    preset = str(overrides.get("preset", ""))
    settings = {key: value for key, value in overrides.items() if key != "preset"}
    return AppConfig.from_values((read_preset(preset) if preset else {}) | settings)


OWN = ("data-path", "partition", "state-dir", "share-label-counts", "device", "threads")
"""Settings that every client may have otherwise, in its node configuration."""
IDENTITY = ("partition-id", "num-partitions")


def resolve_run_config(run_config: Mapping[str, Value], node_config: Mapping[str, Value] | None = None) -> AppConfig:
    """The configuration of a run that Flower launched, at a client with what it has in its `node_config`.

    Flower hands over its table of defaults with the user's values already written in, so a value that equals its
    default counts as not set: there a preset's value wins.

    Raises
    ------
    ConfigError
        For a key of `node_config` that is no setting of a single client.
    """
    own = {key: value for key, value in (node_config or {}).items() if key not in IDENTITY}
    if foreign := own.keys() - set(OWN):
        raise ConfigError(
            f"The node configuration has {', '.join(sorted(foreign))}. It may have {', '.join((*IDENTITY, *OWN))}."
        )
    defaults = known_defaults()
    return resolve({key: value for key, value in run_config.items() if defaults.get(key) != value} | own)
