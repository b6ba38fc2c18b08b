"""Incompatible combinations of settings. Each is refused with a sentence that tells the user what to do.

Every function raises ConfigError for one kind of combination, and otherwise returns nothing.
"""

from fedsel_app.config import ConfigError, EnrolmentConfig, ExecutionConfig, Settings, SharedSettings
from strategies.base import SelectionStrategy


def validate_combination(settings: SharedSettings, strategy: type[SelectionStrategy], method: Settings) -> None:
    """Raise ConfigError for the first of these combinations that cannot be run."""
    validate_differential_privacy(settings)
    validate_clients(settings)
    validate_compression(settings)
    validate_solver(settings)
    validate_robust_aggregation(settings)
    validate_participation(settings, strategy)
    validate_method(settings, strategy, method)
    strategy.check_settings(method, settings)


def validate_clients(settings: SharedSettings) -> None:
    """Raise ConfigError if more replies are required than there are clients, or if test parts are needed but empty."""
    clients, least = settings.run.clients, settings.replies.min_returned
    if least > clients:
        raise ConfigError(f"The 'min-returned' parameter must be at most 'clients' ({clients}). Got {least}.")
    if settings.evaluation.client_eval and settings.partition.holdout_fraction == 0:
        raise ConfigError("'client-eval' needs each client's own test part; set 'holdout-fraction' above 0.")


def validate_compression(settings: SharedSettings) -> None:
    """Raise ConfigError if compressor, precision and error feedback are incompatible."""
    compression = settings.compression
    if compression.compressor == "qsgd" and compression.value_bits < 32:
        raise ConfigError(
            "The 'compressor' qsgd rounds its values itself, as 'qsgd-levels' says: set 'value-bits' to 32, "
            "or choose another compressor."
        )
    if compression.ef21 and compression.lossless:
        raise ConfigError(
            "The 'error-feedback-scheme' ef21 has nothing to estimate if updates are not compressed: choose another "
            "'compressor' than none, or set 'error-feedback-scheme' to ef14."
        )
    if compression.error_feedback_scheme == "ef21" and not compression.error_feedback:
        raise ConfigError("The 'error-feedback-scheme' ef21 needs error feedback: set 'error-feedback' to true.")


def validate_solver(settings: SharedSettings) -> None:
    """Raise ConfigError if the local solver is incompatible with the compressor, optimizer or server optimizer."""
    training, compression = settings.training, settings.compression
    solver, compressor, optimizer = training.solver, compression.compressor, settings.server_optimizer.server_optimizer
    if solver == "feddyn" and not compression.lossless:
        raise ConfigError(
            f"Set 'compressor' to none and 'value-bits' to 32 instead of {compressor} and {compression.value_bits}, or "
            "choose another 'solver' than feddyn: a client's linear term is the gradient of its loss at its own model, "
            "and the server keeps the mean of these terms. From a compressed update it would get another mean; and a "
            "client that remembered only what it sent would no longer keep its gradient."
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


def validate_robust_aggregation(settings: SharedSettings) -> None:
    """Raise ConfigError for settings with which robust aggregation protects nothing."""
    config, solver, cohort = settings.aggregation, settings.training.solver, settings.run.cohort
    rule = config.aggregation
    if rule == "mean":
        if config.entry_malicious:
            raise ConfigError(
                "The 'entry-malicious' parameter bounds what a robust 'aggregation' combines: set 'aggregation' to "
                "trimmed-mean or another, or 'entry-malicious' to 0."
            )
        return
    if settings.calibration.calibration_form == "sequential":
        raise ConfigError(
            f"Under the 'aggregation' {rule} no single client may set the BatchNorm statistics: set "
            "'calibration-form' to average, or 'aggregation' to mean."
        )
    if config.weighting not in ("method", "uniform"):
        raise ConfigError(
            f"The 'aggregation' {rule} counts every client alike, so 'weighting' {config.weighting} would be ignored: "
            "set 'weighting' to uniform, or 'aggregation' to mean."
        )
    if solver not in ("sgd", "fedprox"):
        raise ConfigError(
            f"The 'solver' {solver} has means of its own that the 'aggregation' {rule} does not protect: "
            "set 'solver' to sgd or fedprox, or 'aggregation' to mean."
        )
    if cohort < config.least_updates:
        raise ConfigError(
            f"To withstand {config.krum_malicious} hostile clients ('krum-malicious') the 'aggregation' {rule} needs "
            f"a cohort of {config.least_updates} at least. Got {cohort}."
        )


def validate_differential_privacy(settings: SharedSettings) -> None:
    """With differential privacy, raise ConfigError for values for which nobody has proven that epsilon holds."""
    privacy, largest = settings.privacy, 1.0 / settings.run.clients
    if not privacy.dp_clip_norm:
        return
    groups = settings.groups().values()
    chosen = [pair for group in groups for pair in zip(group.entries(), group.values().values(), strict=True)]
    unproven = [
        f"'{entry.key}' to {' or '.join(str(proven) or 'empty' for proven in entry.private_values)} (it is {value})"
        for entry, value in chosen
        if entry.private_values and value not in entry.private_values
    ]
    if unproven:
        raise ConfigError(
            f"Set {', '.join(unproven)}, or set 'dp-clip-norm' to 0. Only for these values it is proven that one "
            "client's data move the sum of the updates by at most one clip norm, so that the epsilon holds."
        )
    if privacy.dp_delta > largest:
        raise ConfigError(
            f"The 'dp-delta' parameter must be at most 1 / 'clients', {largest:g}. Got {privacy.dp_delta:g}. A larger "
            "one would allow that all data of one client are published."
        )


def validate_participation(settings: SharedSettings, strategy: type[SelectionStrategy]) -> None:
    """Raise ConfigError if the method excludes the participation policy, or the policy's search lacks a loss."""
    policy, isp, taken = settings.participation, settings.search_loss, settings.partition.surrogate_examples
    if taken and isp.surrogate_path:
        raise ConfigError("The surrogate set is that of 'surrogate-path' or 'surrogate-examples'; set one of the two.")
    if taken and settings.partition.partition == "own":
        raise ConfigError(
            "With 'partition' own no node has the whole training set, and 'surrogate-examples' would take some away at "
            "each of them: set it to 0, and 'surrogate-path' to a file."
        )
    if policy.searches and isp.isp_loss == "surrogate" and not (isp.surrogate_path or taken):
        raise ConfigError(
            "The 'isp-loss' parameter surrogate needs a surrogate set: set 'surrogate-path' to a file, or "
            "'surrogate-examples' to a number of training examples."
        )
    if policy.searches and isp.isp_loss == "clients" and isp.surrogate_path:
        raise ConfigError("The 'surrogate-path' is read where 'isp-loss' is surrogate; set that, or no path.")
    if policy.participation != "fixed" and not strategy.free_cohort:
        raise ConfigError(
            f"The strategy {strategy.name} decides itself how many clients train, so a participation policy cannot. "
            "Set 'participation' to fixed."
        )
    if policy.searches and isp.isp_loss == "clients" and settings.partition.holdout_fraction == 0:
        raise ConfigError(
            f"The participation policy {policy.participation} tests candidate models on the clients' own test parts; "
            "set 'holdout-fraction' above 0, or set 'isp-loss' to surrogate with 'surrogate-examples'."
        )


def validate_method(settings: SharedSettings, strategy: type[SelectionStrategy], method: Settings) -> None:
    """Raise ConfigError if clients do not share what the method needs, or if over-selection would change a cohort's
    size that a search or the method determines.
    """
    if strategy.needs(method).label_counts and not settings.privacy.share_label_counts:
        raise ConfigError(
            f"The strategy {strategy.name} reads how many examples of each class a client has; set "
            "'share-label-counts' to true, or choose another strategy."
        )
    if settings.replies.over_selection and (settings.participation.searches or not strategy.free_cohort):
        raise ConfigError(
            "A search or the method determines the cohort's size here, and 'over-selection' would change it: "
            "set 'over-selection' to 0."
        )


def validate_simulation(execution: ExecutionConfig, enrolment: EnrolmentConfig) -> None:
    """Refuse settings that a simulation of `flwr run` cannot have."""
    chosen = {
        "engine": execution.engine == "inline",
        "workers": execution.workers,
        "ray-address": execution.ray_address,
        "client-gpus": execution.client_gpus,
    }
    if own := [f"'{key}'" for key, is_chosen in chosen.items() if is_chosen]:
        raise ConfigError(
            f"Use `fedsel run`, or leave {' and '.join(own)} out: Flower starts the workers of `flwr run`. Its "
            '--federation-config "client-resources-num-cpus=1 client-resources-num-gpus=0.5" sets the share of each.'
        )
    if enrolment.node_keys:
        raise ConfigError("Leave 'node-keys' out: simulated nodes have no keys.")


def validate_task(strategy: type[SelectionStrategy], method: Settings, task: str) -> None:
    """Raise ConfigError if the method reads classes, but the data set has none: see `Dataset.task`."""
    needs = strategy.needs(method)
    if task != "classification" and (needs.label_counts or needs.class_biases):
        read = "how many examples of each class a client has" if needs.label_counts else "the biases of the classes"
        raise ConfigError(
            f"The strategy {strategy.name} reads {read}, and a {task} data set has no classes: "
            "choose another 'strategy', or 'data' for classification."
        )
