"""Incompatible combinations of settings. Each is refused with a sentence that tells the user what to do.

Every function raises ConfigError for one kind of combination, and otherwise returns nothing.
"""

from fedsel_app.config import ConfigError, EnrolmentConfig, EvaluationConfig, ExecutionConfig, Settings, SharedSettings
from fedsel_app.config.compression import COMPRESSORS
from fedsel_app.config.run import METRICS
from fedsel_app.config.server import AGGREGATIONS, PLAIN_MODELS, SERVER_OPTIMIZERS
from fedsel_app.config.settings import named
from fedsel_app.config.training import SOLVERS
from fedsel_app.wire.ring import RINGS, largest
from strategies.base import SelectionStrategy
from strategies.method import SelectionMethod
from strategies.round.replies.deadline import over_selected_count


def validate_combination(settings: SharedSettings, strategy: type[SelectionStrategy], method: Settings) -> None:
    """Raise ConfigError for the first of these combinations that cannot be run."""
    validate_differential_privacy(settings)
    validate_clients(settings)
    validate_attackers(settings, settings.run.rounds * strategy.most_iterations(method))
    validate_compression(settings)
    validate_ring(settings, strategy)
    validate_solver(settings)
    validate_robust_aggregation(settings)
    validate_calibration(settings)
    validate_local_layers(settings)
    validate_participation(settings, strategy)
    validate_waiting(settings, strategy)
    validate_method(settings, strategy, method)
    validate_secure_sums(settings, strategy, method)
    strategy.check_settings(method, settings)


def validate_clients(settings: SharedSettings) -> None:
    """Raise ConfigError if more replies are required than there are clients, or if test parts are needed but empty."""
    clients, least = settings.run.clients, settings.replies.min_returned
    if least > clients:
        raise ConfigError(f"The 'min-returned' parameter must be at most 'clients' ({clients}). Got {least}.")
    if settings.evaluation.client_eval and settings.partition.holdout_fraction == 0:
        raise ConfigError("Set 'holdout-fraction' above 0: 'client-eval' needs each client's own test part.")


def validate_attackers(settings: SharedSettings, rounds: int) -> None:
    """Raise ConfigError for attackers that are no clients, attack in no round, or lie about updates that none sends."""
    attack, clients = settings.attack, settings.run.clients
    if attack.attack == "none":
        return
    if attack.ids and attack.ids[-1] >= clients:
        raise ConfigError(f"The 'attackers' must be below 'clients' ({clients}). Got {attack.attackers!r}.")
    named_or_drawn = attack.ids or attack.share
    if attack.attack_from > rounds or (named_or_drawn and not attack.attackers_in(attack.attack_from, settings.run)):
        raise ConfigError("No client attacks in any round: see 'attackers', 'attack-from' and 'attack-until'.")
    if attack.traits.lies and settings.compression.ef21:
        raise ConfigError(
            f"Set 'error-feedback-scheme' to ef14, or 'attack' to another than {attack.attack}: with ef21 a client "
            "sends a difference of updates, and the attack's formula is that of an update."
        )
    if attack.traits.lies and settings.compression.traits.common:
        others = named(COMPRESSORS, lambda traits: not traits.common)
        raise ConfigError(
            f"Set 'compressor' to {others}, or 'attack' to another than {attack.attack}: all clients of "
            f"{settings.compression.compressor} send the entries that the server states."
        )
    if attack.traits.knows and settings.waiting.waiting != "synchronous":
        raise ConfigError(
            f"Set 'waiting' to synchronous, or choose another 'attack': the attackers of {attack.attack} know the "
            "updates of a cohort, which trains from the same model."
        )


def validate_compression(settings: SharedSettings) -> None:
    """Raise ConfigError if compressor, precision and error feedback are incompatible."""
    compression = settings.compression
    name, traits = compression.compressor, compression.traits
    if traits.rounded_by and compression.value_bits < 32:
        raise ConfigError(
            f"Set 'value-bits' to 32, or choose another 'compressor': {name} rounds its values itself, as "
            f"'{traits.rounded_by}' says."
        )
    if traits.common and compression.ef21:
        raise ConfigError(
            f"Set 'error-feedback-scheme' to ef14, or choose another 'compressor' than {name}: ef21 needs values that "
            "are not clipped."
        )
    if compression.ef21 and compression.lossless:
        raise ConfigError(
            f"Choose another 'compressor' than {name}, or set 'error-feedback-scheme' to ef14: ef21 has nothing to "
            "estimate if updates are not compressed."
        )
    if compression.error_feedback_scheme == "ef21" and not compression.error_feedback:
        raise ConfigError(
            "Set 'error-feedback' to true, or 'error-feedback-scheme' to ef14: ef21 works only with error feedback."
        )


def validate_ring(settings: SharedSettings, strategy: type[SelectionStrategy]) -> None:
    """Raise ConfigError if the sum of a round's clients does not fit the ring, or its clients get different entries."""
    compression, run = settings.compression, settings.run
    if not compression.traits.common:
        return
    others = named(COMPRESSORS, lambda traits: not traits.common)
    if settings.waiting.waiting != "synchronous":
        raise ConfigError(
            f"Set 'waiting' to synchronous, or 'compressor' to {others}: the clients of a buffer began in different "
            f"rounds, and {compression.compressor} has other entries in each round."
        )
    clients = run.clients
    if settings.participation.participation == "fixed" and strategy.exact_cohort:
        clients = over_selected_count(run.cohort, settings.replies.over_selection, run.clients)
    if not largest(compression.ring_bits, clients):
        fitting = next(bits for bits in RINGS if largest(bits, clients))
        raise ConfigError(
            f"Set 'ring-bits' to at least {fitting} (it is {compression.ring_bits}): the sum of {clients} clients has "
            f"no room in a ring of {compression.ring_bits} bits."
        )


def validate_solver(settings: SharedSettings) -> None:
    """Raise ConfigError if the local solver is incompatible with the compressor, optimizer or server optimizer."""
    training, compression, optimizer = settings.training, settings.compression, settings.server_optimizer
    solver, plain = training.traits, named(SERVER_OPTIMIZERS, lambda traits: traits.plain)
    if solver.needs_whole_updates and not compression.lossless:
        lossless, kind = named(COMPRESSORS, lambda traits: traits.lossless), compression.compressor
        changes = [] if compression.traits.lossless else [f"'compressor' to {lossless} (it is {kind})"]
        changes += [f"'value-bits' to 32 (it is {compression.value_bits})"] if compression.value_bits != 32 else []
        raise ConfigError(
            f"Set {' and '.join(changes)}, or choose another 'solver': {solver.title} keeps each client's gradient, "
            "which is the sum of its whole updates."
        )
    if solver.own_server_step and not optimizer.traits.plain:
        raise ConfigError(
            f"Set 'server-optimizer' to {plain} (it is {optimizer.server_optimizer}), or choose another 'solver': "
            f"{solver.title} has its own server step."
        )
    if solver.needs_plain_sgd and training.optimizer != "sgd":
        raise ConfigError(
            f"Set 'optimizer' to sgd (it is {training.optimizer}), or choose another 'solver': {solver.title} works "
            "only with plain SGD."
        )
    if solver.needs_updates_of_one_round and compression.ef21:
        raise ConfigError(
            f"Set 'error-feedback-scheme' to ef14, or choose another 'solver': {solver.title} needs updates of one "
            "round, and ef21 mixes those of several rounds."
        )


def validate_robust_aggregation(settings: SharedSettings) -> None:
    """Raise ConfigError for settings with which robust aggregation protects nothing."""
    config, solver, cohort = settings.aggregation, settings.training.traits, settings.run.cohort
    rule, others = config.aggregation, named(AGGREGATIONS, lambda traits: not traits.robust)
    if not config.traits.robust:
        if config.entry_malicious:
            robust = named(AGGREGATIONS, lambda traits: traits.robust)
            raise ConfigError(
                f"Set 'aggregation' to {robust}, or 'entry-malicious' to 0: 'entry-malicious' bounds only what a "
                "robust 'aggregation' combines."
            )
        return
    if config.weighting not in ("method", "uniform"):
        raise ConfigError(
            f"Set 'weighting' to uniform, or 'aggregation' to {others}: the 'aggregation' {rule} weighs all clients "
            f"equally, so 'weighting' {config.weighting} would be ignored."
        )
    if not solver.averages_updates_only:
        protected = named(SOLVERS, lambda traits: traits.averages_updates_only)
        raise ConfigError(
            f"Set 'solver' to {protected}, or 'aggregation' to {others}: a robust 'aggregation' does not protect the "
            f"extra state that {solver.title} averages."
        )
    if cohort < config.least_updates:
        least = config.traits.least_updates
        lower = " lower 'krum-malicious'," if least(2) > least(1) else ""
        raise ConfigError(
            f"Set 'cohort' to at least {config.least_updates} (it is {cohort}),{lower} or 'aggregation' to {others}: "
            f"the 'aggregation' {rule} needs so many updates to withstand a hostile client."
        )


def validate_calibration(settings: SharedSettings) -> None:
    """Raise ConfigError if one client alone could set the BatchNorm statistics, although clients are not trusted."""
    config = settings.aggregation
    others, trusting = named(AGGREGATIONS, lambda traits: not traits.robust), not config.max_update_norm
    if settings.calibration.calibration_form != "sequential" or settings.run.model in PLAIN_MODELS:
        return
    if config.traits.robust or not trusting:
        also = f" and 'aggregation' to {others}" if config.traits.robust else ""
        raise ConfigError(
            f"Set 'calibration-form' to average. If you trust all clients, set 'max-update-norm' to 0{also}: with "
            "sequential, one client alone can set the BatchNorm statistics, and nothing bounds them."
        )


def validate_local_layers(settings: SharedSettings) -> None:
    """Raise ConfigError if the server is to test a model that lacks the clients' own layers, or to state these."""
    if not settings.calibration.local:
        return
    searches = settings.participation.searches and settings.search_loss.isp_loss == "surrogate"
    met = {
        "'client-eval' to true": settings.evaluation.client_eval,
        "'initial-model' to empty": not settings.run.initial_model,
        "'validation-fraction' to 0": not settings.partition.validation_fraction,
        "'isp-loss' to clients": not searches,
        "another 'attack' than backdoor": settings.attack.attack != "backdoor",
    }
    if remedies := [remedy for remedy, holds in met.items() if not holds]:
        raise ConfigError(
            f"Set {' and '.join(remedies)}, or 'local-layers' to empty and 'calibration-form' to average: the server's "
            "model lacks the layers that stay with the clients. So the clients test it, and begin with the layers that "
            "the function of the model builds."
        )


def validate_differential_privacy(settings: SharedSettings) -> None:
    """With differential privacy, raise ConfigError for values for which it is not proven that epsilon holds."""
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
            "client's data move the sum of the updates by at most one clip norm, and that numbers without noise stay "
            "in the run folder."
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
        raise ConfigError("Set 'surrogate-path' or 'surrogate-examples', not both: each gives the surrogate set.")
    if settings.partition.validation_fraction and settings.partition.partition == "own":
        raise ConfigError(
            "Set 'validation-fraction' to 0: with 'partition' own, no node has the whole training set. For a score on "
            "other data than the test set, set 'client-eval' to true and 'holdout-fraction' above 0."
        )
    if taken and settings.partition.partition == "own":
        raise ConfigError(
            "Set 'surrogate-examples' to 0, and 'surrogate-path' to a file: with 'partition' own, no node has the "
            "whole training set, and each node would take the examples from its own."
        )
    if policy.searches and isp.isp_loss == "surrogate" and not (isp.surrogate_path or taken):
        raise ConfigError(
            "Set 'surrogate-path' to a file, or 'surrogate-examples' to a number of training examples: the 'isp-loss' "
            "surrogate needs a surrogate set."
        )
    if policy.searches and isp.isp_loss == "clients" and isp.surrogate_path:
        raise ConfigError(
            "Set 'isp-loss' to surrogate, or leave 'surrogate-path' out: only the 'isp-loss' surrogate reads it."
        )
    if policy.participation != "fixed" and not strategy.free_cohort:
        raise ConfigError(
            f"Set 'participation' to fixed: the strategy {strategy.name} decides itself how many clients train."
        )
    if policy.searches and isp.isp_loss == "clients" and settings.partition.holdout_fraction == 0:
        raise ConfigError(
            "Set 'holdout-fraction' above 0, or 'isp-loss' to surrogate with 'surrogate-examples': the 'participation' "
            f"{policy.participation} tests candidate models on the clients' own test parts."
        )


def validate_waiting(settings: SharedSettings, strategy: type[SelectionStrategy]) -> None:
    """Raise ConfigError for what a server cannot have that does not wait for its cohort."""
    config, replies, solver = settings.waiting, settings.replies, settings.training.traits
    if config.waiting == "synchronous":
        return
    otherwise = "or 'waiting' to synchronous"
    if reason := strategy.needs_whole_cohort:
        raise ConfigError(f"Set 'waiting' to synchronous, or choose another 'strategy' than {strategy.name}: {reason}.")
    if settings.participation.searches:
        raise ConfigError(
            f"Set 'participation' to a schedule, {otherwise}: {settings.participation.participation} searches "
            "with clients that all train from the same model."
        )
    if solver.keeps_state or solver.needs_updates_of_one_round:
        fitting = named(SOLVERS, lambda traits: not (traits.keeps_state or traits.needs_updates_of_one_round))
        raise ConfigError(
            f"Set 'solver' to {fitting}, {otherwise}: {solver.title} combines updates that all began at the same model."
        )
    if replies.over_selection or replies.round_deadline_s:
        raise ConfigError(
            f"Set 'over-selection' and 'round-deadline-s' to 0, {otherwise}: a server that does not wait for "
            "its cohort takes the first replies anyway."
        )
    if config.wanted > settings.run.cohort:
        raise ConfigError(
            f"Set 'buffer-size' to at most 'cohort' ({settings.run.cohort}), {otherwise}: so many clients train at the "
            f"same time. Got {config.wanted}."
        )
    if replies.min_returned > config.wanted:
        raise ConfigError(f"Set 'min-returned' to at most {config.wanted}, {otherwise}: the server waits for no more.")
    _validate_late_updates(settings, otherwise)


def _validate_late_updates(settings: SharedSettings, otherwise: str) -> None:
    """Raise ConfigError if the server cannot weigh the updates of a buffer, or mix a model, as `waiting` says."""
    config, rule, optimizer = settings.waiting, settings.aggregation, settings.server_optimizer
    alone = config.waiting == "asynchronous"
    if rule.traits.robust and alone:
        raise ConfigError(f"Set 'aggregation' to mean, {otherwise}: an asynchronous server takes one reply at a time.")
    if alone and not optimizer.traits.plain:
        plain = named(SERVER_OPTIMIZERS, lambda traits: traits.plain)
        raise ConfigError(
            f"Set 'server-optimizer' to {plain} (it is {optimizer.server_optimizer}), {otherwise}: an asynchronous "
            "server mixes models, with 'server-lr' as the share of the new one."
        )
    if alone and optimizer.server_lr > 1.0:
        raise ConfigError(
            f"Set 'server-lr' to at most 1 (it is {optimizer.server_lr:g}), {otherwise}: an asynchronous server mixes "
            "models, with 'server-lr' as the share of the new one."
        )
    if rule.traits.robust and config.staleness != "constant":
        raise ConfigError(
            f"Set 'staleness' to constant, or 'aggregation' to mean: the 'aggregation' {rule.aggregation} weighs all "
            "clients equally."
        )
    if config.wanted < rule.least_updates:
        raise ConfigError(
            f"Set 'buffer-size' to at least {rule.least_updates} (it is {config.wanted}), {otherwise}: the "
            f"'aggregation' {rule.aggregation} needs so many updates to withstand a hostile client."
        )


def validate_method(settings: SharedSettings, strategy: type[SelectionStrategy], method: Settings) -> None:
    """Raise ConfigError if clients do not share what the method needs, or if over-selection would change a cohort's
    size that a search or the method determines.
    """
    if strategy.needs(method).label_counts and not settings.privacy.share_label_counts:
        raise ConfigError(
            f"Set 'share-label-counts' to true, or choose another 'strategy': the strategy {strategy.name} reads how "
            "many examples of each class a client has."
        )
    if strategy.needs(method).probe_test_part and settings.partition.holdout_fraction == 0:
        raise ConfigError(
            f"Set 'holdout-fraction' above 0: the strategy {strategy.name} measures on each client's own test part."
        )
    if settings.replies.over_selection and (reason := strategy.needs_all_selected):
        raise ConfigError(f"Set 'over-selection' to 0, or choose another 'strategy' than {strategy.name}: {reason}.")
    if settings.replies.over_selection and (settings.participation.searches or not strategy.free_cohort):
        raise ConfigError(
            "Set 'over-selection' to 0: a search or the method determines the cohort's size, and 'over-selection' "
            "would change it."
        )


def validate_secure_sums(settings: SharedSettings, strategy: type[SelectionStrategy], method: Settings) -> None:
    """Raise ConfigError for what a server that learns only sums cannot do."""
    if not settings.privacy.masked:
        return
    otherwise, compression, rule = "or 'secure-sums' to none", settings.compression, settings.aggregation
    if not compression.traits.common:
        common = named(COMPRESSORS, lambda traits: traits.common)
        raise ConfigError(
            f"Set 'compressor' to {common} (it is {compression.compressor}), {otherwise}: masks cancel only if all "
            "clients send the same entries, as whole numbers."
        )
    if rule.traits.robust or rule.traits.needs_single_updates:
        sums = named(AGGREGATIONS, lambda traits: not (traits.robust or traits.needs_single_updates))
        raise ConfigError(
            f"Set 'aggregation' to {sums} (it is {rule.aggregation}), {otherwise}: the others compare single updates."
        )
    if rule.weighting not in ("uniform", "examples"):
        raise ConfigError(
            f"Set 'weighting' to uniform or examples (it is {rule.weighting}), {otherwise}: weights that the server "
            "chose would tell it single updates."
        )
    if rule.max_update_norm:
        raise ConfigError(
            f"Set 'max-update-norm' to 0, {otherwise}: the server sees no norm of a single update. A hostile client "
            "then moves each entry of the mean by at most what one client may send."
        )
    if not settings.training.traits.averages_updates_only:
        plain = named(SOLVERS, lambda traits: traits.averages_updates_only)
        raise ConfigError(
            f"Set 'solver' to {plain}, {otherwise}: {settings.training.traits.title} sends more than its update, and "
            "nothing masks that."
        )
    if settings.participation.searches:
        raise ConfigError(
            f"Set 'participation' to a schedule, {otherwise}: {settings.participation.participation} tests the sums of "
            "many parts of a cohort, from which single updates follow."
        )
    needs, least = strategy.needs(method), settings.privacy.least_cohort
    if needs.updates or (needs.round_updates and strategy.update is not SelectionMethod.update):
        own = f"Set {strategy.without_updates}, or choose" if strategy.without_updates else "Choose"
        raise ConfigError(
            f"{own} another 'strategy' than {strategy.name}, {otherwise}: it reads the clients' single updates."
        )
    if needs.fit_metrics:
        raise ConfigError(
            f"Choose another 'strategy' than {strategy.name}, {otherwise}: it reads metrics beside each update, which "
            "nothing masks."
        )
    if needs.norms != (settings.privacy.clear_number == "norm"):
        asked, reads = ("norm", "selects by") if needs.norms else ("none", "does not read")
        raise ConfigError(
            f"Set 'clear-number' to {asked}, {otherwise}: the strategy {strategy.name} {reads} the norm of each "
            "client's update, which nothing masks."
        )
    if needs.norms and rule.weighting == "examples":
        raise ConfigError(
            f"Set 'weighting' to uniform, {otherwise}: the strategy {strategy.name} reads the norms of updates, and "
            "the clients would send weighted ones."
        )
    if settings.run.cohort < least:
        raise ConfigError(
            f"Set 'cohort' to at least {least} (it is {settings.run.cohort}), {otherwise}: a sum over fewer clients "
            "tells too much of each ('least-cohort')."
        )


def refuse_masked_calibration(settings: SharedSettings, statistics: int) -> None:
    """Raise ConfigError if clients would calibrate a model beside their masked updates."""
    form = settings.calibration.calibration_form
    if settings.privacy.masked and statistics and not settings.calibration.of_training:
        raise ConfigError(
            f"Set 'calibration-form' to training or local (it is {form}), or 'secure-sums' to none: the model "
            f"{settings.run.model} has BatchNorm, and only the statistics of local training are masked."
        )


def validate_simulated_links(settings: SharedSettings) -> None:
    """Refuse measured links in a simulation whose server does not wait: it would measure the turns of its workers."""
    if settings.network.links == "measured" and settings.waiting.waiting != "synchronous":
        raise ConfigError(
            "Set 'links' to simulated, or 'waiting' to synchronous: simulated clients have no replies on the way, so "
            "a server that does not wait needs the simulated clock."
        )


def validate_simulation(settings: SharedSettings, execution: ExecutionConfig, enrolment: EnrolmentConfig) -> None:
    """Refuse settings that a simulation of `flwr run` cannot have."""
    validate_simulated_links(settings)
    chosen = {
        "engine": execution.engine == "inline",
        "workers": execution.workers,
        "client-gpus": execution.client_gpus,
    }
    if keys := [f"'{key}'" for key, is_chosen in chosen.items() if is_chosen]:
        raise ConfigError(
            f"Use `fedsel run`, or leave {' and '.join(keys)} out: Flower starts the workers of `flwr run`. Its "
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
            f"Choose another 'strategy', or 'data' for classification: the strategy {strategy.name} reads {read}, and "
            f"a {task} data set has no classes."
        )


def validate_metrics(evaluation: EvaluationConfig, task: str) -> None:
    """Raise ConfigError for a metric that a data set of this task does not have: see `Dataset.task`."""
    for name in evaluation.measured:
        if task not in METRICS[name].tasks:
            fitting = [each for each, metric in METRICS.items() if task in metric.tasks]
            raise ConfigError(
                f"Leave out the metric {name} ('metrics', 'score'): it needs {' or '.join(METRICS[name].tasks)}, "
                f"but the task of this data set is {task}. It may have {', '.join(fitting) or 'no metrics'}."
            )
