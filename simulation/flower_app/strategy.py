"""Strategy for a user's own ServerApp: any strategy of fedsel with the model and clients of the app.

It has two interfaces. In Flower's Message API, `strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)` runs
all rounds. Flower's legacy server calls the methods of its `Strategy` interface instead.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from functools import lru_cache, partial
from inspect import signature
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    NDArrays,
    Parameters,
    Scalar,
    parameters_to_ndarrays,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.settings import plain_value
from fedsel_app.messages.answers import MOST_EXAMPLES
from fedsel_app.messages.instructions import LocalTestInstruction
from fedsel_app.messages.reported_values import one_line, refuse_endless
from fedsel_app.messages.user_apps import users_keys
from fedsel_app.models.array_layout import ArrayLayout, twins
from fedsel_app.network.links import make_links
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.reading import check_client, read_rows
from fedsel_app.records.run_folder import (
    RunFolder,
    UnkeptRecords,
    describe,
    is_finished,
    read_model,
    read_rounds,
    refuse_other_settings,
)
from fedsel_app.records.schema import RoundRecord, Row
from fedsel_app.records.trackers import add_trackers
from fedsel_app.wire.codec import WireError
from simulation.flower_app.client_metrics import (
    aggregated_pairs,
    aggregated_records,
    bounded,
    finite_metrics,
    mean_metrics,
    numbers,
)
from simulation.flower_app.flowers_words import (
    ALONE,
    EVALUATE_CONFIG,
    TRAIN_CONFIG,
    refuse_arguments,
    refuse_legacy,
    refuse_options,
    refuse_other_types,
)
from simulation.flower_app.kept_result import keep, recall
from simulation.flower_app.settings import AppOptions, EvaluateFn, app_config, recorded
from simulation.flower_app.transports import UserGrid, UserManager, UserReply, score_of
from simulation.flower_app.user_clients import UserClients, counts
from strategies.base import SelectionStrategy
from strategies.method import evaluates, most_rounds
from strategies.round.federation import Reply, SentModel, sent_model
from strategies.round.flower_manager import as_parameters
from strategies.round.method_checks import build
from strategies.round.replies import replies_among
from strategies.run_context import Evaluation, RunContext
from strategies.run_round import run_rounds

LOGGER, FLOWER_LOGGER = logging.getLogger("fedsel"), logging.getLogger("flwr")
NO_EVALUATE = "No evaluate function registered"
"""Part of the error of a client app without `@app.evaluate()`."""
SCORE = "accuracy"
"""Name of the score in the records without `score_key`."""
ClientFailures = list[tuple[ClientProxy, FitRes] | BaseException]
TestFailures = list[tuple[ClientProxy, EvaluateRes] | BaseException]


def strategy(name: str, *, clients: int, cohort: int, out: str | Path | None = None, **options: Any) -> "AppStrategy":
    """Build a Flower strategy for your own ServerApp and your own clients.

    Parameters
    ----------
    name
        Selection method, as `fedsel methods` lists them, or package.module:Class.
    clients, cohort
        Number of clients (SuperNodes), and number of clients that train in a round.
    out
        Folder of the records; None: no records. With `resume=True` the run in this folder is resumed, and with
        `resume="auto"` it starts if it has not yet started. `start` returns the result of a finished run.
    options
        The fields of `AppOptions`, such as `evaluate_fn`, and fedsel's settings with underscores instead of dashes:
        rounds (unless `start` gets them), seed, compressor, kept_fraction, links and so on, and the method's own
        settings. See docs/flower-app.md.

    Raises
    ------
    ConfigError
        If the settings cannot be run, or the folder cannot be written.
    """
    refuse_options(options)
    names = {field.name for field in fields(AppOptions)}
    settings = {key: value for key, value in options.items() if key not in names}
    settings |= {"clients": clients, "cohort": cohort}
    settings = {key: plain_value(value) for key, value in settings.items()}
    if out is not None:
        settings["out"] = str(Path(out).expanduser().absolute())
    if resume := settings.get("resume"):
        if out is None:
            raise ConfigError("Set 'out', the folder of the run that 'resume' continues, or leave 'resume' out.")
        begun = (Path(str(settings["out"])) / "config.json").exists()
        if resume != "auto" and not begun:
            raise ConfigError(
                f"Set 'resume' to 'auto', which starts a run where none is: {settings['out']} has no run."
            )
        settings["resume"] = begun
    return AppStrategy(name, settings, AppOptions(**{key: options[key] for key in options.keys() & names}))


class AppStrategy(Strategy):
    """Flower strategy that runs the rounds of a selection method with a user's own clients."""

    _inner: SelectionStrategy
    _clients: UserClients
    _recorder: RunFolder | UnkeptRecords

    def __init__(self, name: str, settings: dict[str, Value], options: AppOptions) -> None:
        self._name, self._settings, self._options = name, settings, options
        self._config = app_config(name, settings)
        if self._config.records.trackers and not self._config.records.out:
            raise ConfigError("The 'track' parameter needs a folder of the records: set 'out', or leave it out.")
        self._timeouts = ReplyTimeout(self._config.replies.reply_timeout_s)
        self._blas = ThreadpoolController()
        self._tested: tuple[float, dict[str, Scalar]] | None = None
        if isinstance(given := options.parameters, Parameters):
            self.open(parameters_to_ndarrays(given), options.evaluate_fn)
        elif given is not None:
            self.open(list(given), options.evaluate_fn)

    def __repr__(self) -> str:
        return f"fedsel strategy {self._name}"

    def open(self, arrays: NDArrays, evaluate_fn: EvaluateFn | None, names: Sequence[str] = ()) -> None:
        """Start or resume the run of a model. Raises ConfigError if the method does not suit the model."""
        config = self._config
        layout = self._layout(arrays, names)
        needs = config.strategy.needs(config.method)
        if (needs.class_biases or needs.output_biases) and not layout.has_class_biases:
            raise ConfigError(
                f"The strategy {self._name} reads the biases of the output layer, and the last arrays of the initial "
                "model are no matrix with a vector of its outputs behind it."
            )
        recorder: RunFolder | UnkeptRecords = UnkeptRecords()
        if config.records.out:
            recorder = RunFolder(Path(config.records.out), recorded(config), resume=config.records.resume)
            add_trackers(recorder, config.records.trackers)
            FLOWER_LOGGER.info("fedsel: records in %s", recorder.path)
        self._recorder = recorder
        recorder.listeners.append(partial(_log_round, measured=config.network.links == "measured"))
        initial, buffers = layout.initial()
        self._evaluate_fn = evaluate_fn
        context = RunContext(
            **config.groups(),
            method=config.method,
            initial=initial,
            buffers=buffers,
            variances=layout.variances,
            layers=layout.layers,
            classes=layout.classes,
            links=make_links(config.network, config.run.clients, config.run.seed, config.availability),
            evaluate=self._test,
            recorder=recorder,
            checkpoints_wait="checkpoint_every" not in self._settings,
            losses_optional=True,
            score=self._options.score_key or SCORE,
        )
        self._inner = build(config.strategy, context)
        # A user's client may weigh a fraction of an example.
        self._inner.roster.examples = self._inner.roster.examples.astype(np.float64)
        nodes, examples = _resume(self._inner, recorder) if isinstance(recorder, RunFolder) else ({}, {})
        self._clients = UserClients(config, layout, self._inner.run, nodes, examples)

    def _layout(self, arrays: NDArrays, names: Sequence[str]) -> ArrayLayout:
        """Layout of a model with or without names. Whole updates without noise need no tied arrays."""
        given = dict(zip(names, arrays, strict=True)) if names else arrays
        layout, tied = ArrayLayout(given, self._options.statistics), self._options.tied
        if self._config.compression.lossless and not self._config.privacy.dp_clip_norm:
            return layout
        if tied is None:
            tied = [group for group in twins(arrays, layout.parameters) if np.ptp(arrays[group[0]])]
        return ArrayLayout(given, self._options.statistics, tied)

    # Message API ----------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        should_stop: Callable[[int, Result], bool] | None = None,
        **others: Any,
    ) -> Result:
        """Run all rounds with the clients behind Flower's grid, as Flower's own strategies do.

        Parameters
        ----------
        grid, initial_arrays, train_config, evaluate_config, evaluate_fn
            As in `flwr.serverapp.strategy.Strategy.start`.
        num_rounds
            Rounds of the run; None: the setting `rounds`.
        timeout
            Timeout of the first answers in seconds; None: the setting `reply-timeout-s`.
        should_stop
            As in Flower from 1.43 on, on any release: (round, result so far) -> True to end the run after the round.

        Returns
        -------
        Result
            The final model, and the metrics of each round: the clients' metrics, weighted by examples, and those of
            `evaluate_fn`.

        Raises
        ------
        ConfigError
            If the clients cannot do what the method needs, or `num_rounds` differs from the setting `rounds`.
        RunFailed
            If three rounds in a row, or all rounds, bring no usable update.
        """
        options = {field.name: getattr(self._options, field.name) for field in fields(AppOptions)}
        refuse_arguments(others, list(signature(self.start).parameters)[:-1], options)
        refuse_legacy(name for name, value in options.items() if value is not None)
        refuse_other_types(initial_arrays, {"train_config": train_config, "evaluate_config": evaluate_config})
        if num_rounds is not None:
            self._set_rounds(int(num_rounds))
        self.summary()
        names, arrays = list(initial_arrays), [array.numpy() for array in initial_arrays.values()]
        folder, result = Path(self._config.records.out), Result()
        configs = {
            "train": _config_of_round(train_config, self._options.train_config_fn),
            "evaluate": _config_of_round(evaluate_config, self._options.evaluate_config_fn),
        }
        timeouts = ReplyTimeout(self._config.replies.reply_timeout_s if timeout is None else timeout)
        carrier = UserGrid(grid, timeouts, names, configs, self._options)

        def test(number: int, arrays: NDArrays, _: dict[str, Scalar]) -> tuple[float, dict[str, Scalar]] | None:
            metrics = None if evaluate_fn is None else evaluate_fn(number, carrier.named(SentModel(tuple(arrays))))
            if metrics is None:
                return None
            result.evaluate_metrics_serverapp[number] = metrics
            return carrier.loss_of(metrics), dict(numbers(metrics))

        if self._config.records.resume and is_finished(folder):
            refuse_other_settings(folder, recorded(self._config))
            FLOWER_LOGGER.info("fedsel: the run in %s is finished; its result is returned", folder)
            result = recall(folder, len(read_rounds(folder)))
            result.arrays = carrier.named(SentModel(tuple(self._layout(arrays, names).restore(*read_model(folder)))))
            return result
        self.open(arrays, test, names)
        kept = folder if self._config.records.out else None
        if kept:
            result = recall(kept, self._inner.run.completed)
        self._clients.carrier = carrier
        with closing(self._recorder):
            self._run_rounds(result, carrier, kept, should_stop)
        result.arrays = carrier.named(self._users_model())
        return result

    def summary(self) -> None:
        """Log what the strategy does, as Flower's own strategies do."""
        config, options = self._config, self._options
        for line in (
            f"Starting {self!r}:",
            f"\t├──> Sampling: {config.run.cohort} of {config.run.clients} clients in each round",
            f"\t├──> Compression: {config.compression.compressor}",
            f"\t├──> Server optimizer: {config.server_optimizer.server_optimizer}",
            "\t└──> Keys in records:",
            f"\t\t├── Weighted by: '{options.weighted_by_key}'",
            f"\t\t├── ArrayRecord key: '{options.arrayrecord_key}'",
            f"\t\t└── ConfigRecord key: '{options.configrecord_key}'",
        ):
            FLOWER_LOGGER.info(line)

    def configure_train(self, *arguments: Any) -> NoReturn:
        """Raise ConfigError, for a strategy of Flower's that wraps this one, such as those for privacy."""
        raise ConfigError(ALONE)

    aggregate_train = configure_train

    def _run_rounds(
        self,
        result: Result,
        carrier: UserGrid,
        folder: Path | None,
        should_stop: Callable[[int, Result], bool] | None,
    ) -> None:
        """Run the remaining rounds. Before a round's checkpoint, its metrics are in the result and in the `folder`."""
        run = self._inner.run

        def keep_round(number: int) -> None:
            if number:
                self._keep_metrics(result, run.record)
            if folder is not None:
                keep(result, number, folder)

        def stop(number: int) -> None:
            if should_stop is not None:
                result.arrays = carrier.named(self._users_model())
                if should_stop(number, result) and not run.ended:
                    run.end()

        self._recorder.listeners.append(lambda row: keep_round(row["round"]))
        if run.completed:
            stop(run.completed)
        else:
            self._test_initial()
            keep_round(0)
        self._limited(partial(run_rounds, self._inner, self._clients, lambda record: stop(record.round)))

    def _keep_metrics(self, result: Result, record: RoundRecord) -> None:
        """Keep the clients' metrics of a round."""
        number, options = record.round, self._options
        trained, weights = self._accepted(number)
        tested = self._tested_by_clients(number)
        tests = {client: float(reply.examples) for client, reply in tested.items()}
        bounds = bounded(tests, self._config.reported_values.example_clip)
        for metrics, replies, examples, function in (
            (result.train_metrics_clientapp, trained, weights, options.train_metrics_aggr_fn),
            (result.evaluate_metrics_clientapp, tested, bounds, options.evaluate_metrics_aggr_fn),
        ):
            records = {client: reply.content for client, reply in replies.items() if isinstance(reply, UserReply)}
            found = (
                aggregated_records(records, examples, options.weighted_by_key, function, number) if records else None
            )
            if found is not None:
                metrics[number] = found

    def _accepted(self, number: int) -> tuple[dict[int, Reply], dict[int, float]]:
        """The replies of a round whose updates were aggregated, and their examples, by ascending partition id."""
        roster, trained = self._inner.roster, self._clients.trained
        accepted = {client: trained[client] for client in sorted(trained) if roster.last_returned[client] == number}
        return accepted, {client: float(roster.examples[client]) for client in accepted}

    def _tested_by_clients(self, number: int) -> dict[int, Reply]:
        """Let clients evaluate the model after a round; the usable replies, by ascending partition id.

        With `client-eval` the round itself has asked all clients.
        """
        run, options = self._inner.run, self._options
        if not evaluates(self._inner, number):
            return {}
        if not run.context.evaluation.client_eval:
            chosen = options.evaluating(
                sorted(run.clients.nodes), options.min_evaluate_nodes, run.context.run.seed, number
            )
            answers = run.clients.ask(dict.fromkeys(chosen, LocalTestInstruction(number)), sent_model(*run.model))
            if answers and all(NO_EVALUATE in str(answer) for answer in answers.values()):
                LOGGER.warning("The clients have no @app.evaluate(), so that they evaluate no model of this run.")
                self._options = replace(options, fraction_evaluate=0.0)
                return {}
            replies_among(answers, number, "failed to evaluate")
        tested = self._clients.tested
        for client in [client for client in tested if not counts(tested[client].examples)]:
            told = tested.pop(client).examples
            _leave_out(client, number, options.weighted_by_key, told)
        return dict(sorted(tested.items()))

    def _set_rounds(self, num_rounds: int) -> None:
        """Set the number of rounds. Raises ConfigError if another number was set before."""
        if self._settings.get("rounds", num_rounds) != num_rounds:
            raise ConfigError(
                f"The strategy has {self._settings['rounds']} 'rounds', but start has num_rounds={num_rounds}: "
                "set only one of them."
            )
        self._config = app_config(self._name, {**self._settings, "rounds": num_rounds})

    def _limited(self, step: Callable[[], Any]) -> Any:
        """Carry out a step of the run. Raises ConfigError if the clients cannot do what the method needs."""
        # With one BLAS thread the sums in the methods' linear algebra have the same order on every machine.
        with self._blas.limit(limits=1, user_api="blas"):
            try:
                return step()
            except ConfigError as error:
                if self._clients.enrolments or not self._clients.refusal:
                    raise
                raise ConfigError(self._clients.refusal) from error

    # Flower's legacy server -----------------------------------------------------------------------------------

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial model, or the model of the checkpoint."""
        if not hasattr(self, "_inner"):
            raise ConfigError("Flower's legacy server needs the initial model: strategy(..., parameters=arrays).")
        if self._options.train_config_fn or self._options.evaluate_config_fn:
            raise ConfigError(f"{TRAIN_CONFIG} {EVALUATE_CONFIG}")
        self._returned = as_parameters(self._users_model())
        return self._returned

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Select the round's cohort. Raises ConfigError if the clients cannot do what the method needs."""
        self._refuse_changed(parameters)
        self._refuse_overrun(server_round)
        self._clients.carrier = UserManager(client_manager, self._timeouts, self._options)
        self._inner.federation = lambda client_manager: self._clients  # type: ignore[method-assign]
        instructions: list[tuple[ClientProxy, FitIns]] = self._limited(
            lambda: self._inner.configure_fit(server_round, parameters, client_manager)
        )
        if instructions:
            self._limited(self._clients.refuse_lossless)
        return instructions

    def aggregate_fit(
        self, server_round: int, results: list[tuple[ClientProxy, FitRes]], failures: ClientFailures
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Aggregate the replies of the round."""
        if len({id(reply.parameters) for _, reply in results}) < len(results):
            raise ConfigError(ALONE)  # the parameters of SecAgg+: the sum, for each client
        flat, metrics = self._limited(lambda: self._inner.aggregate_fit(server_round, results, failures))
        number = self._inner.run.completed + server_round
        trained, weights = self._accepted(number)
        if (function := self._options.fit_metrics_aggregation_fn) and trained:
            told = {client: users_keys(reply.metrics) for client, reply in trained.items()}
            metrics = metrics | aggregated_pairs(told, weights, function, number)
        if flat is None:
            return None, metrics
        self._returned = as_parameters(self._users_model())
        return self._returned, metrics

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Evaluate the model with the user's function, before round 1 and every `eval-every` rounds."""
        self._refuse_changed(parameters)
        if not server_round and not self._inner.run.completed:
            return self._test_initial()
        return None if self._inner.evaluate(server_round, parameters) is None else self._tested

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Let clients evaluate the model of the round."""
        run, options, number = self._inner.run, self._options, self._inner.run.completed + server_round
        if run.record.round != number or not evaluates(self._inner, number):
            return []
        proxies, nodes = client_manager.all(), run.clients.nodes
        connected = [client for client in sorted(nodes) if nodes[client] in proxies]
        chosen = options.evaluating(connected, options.min_evaluate_clients, run.context.run.seed, number)
        self._evaluating = {nodes[client]: client for client in chosen}
        config = UserManager(client_manager, self._timeouts, options).users_config("evaluate", number)
        return [(proxies[node], EvaluateIns(parameters, config)) for node in self._evaluating]

    def aggregate_evaluate(
        self, server_round: int, results: list[tuple[ClientProxy, EvaluateRes]], failures: TestFailures
    ) -> tuple[float | None, dict[str, Scalar]]:
        """The mean of the clients' losses, weighted by their examples, and the user's aggregate of their metrics."""
        number, found = self._inner.run.completed + server_round, dict[int, EvaluateRes]()
        for failure in failures:
            reason = failure[1].status.message if isinstance(failure, tuple) else failure
            LOGGER.warning("Round %d: a client failed to evaluate: %s", number, one_line(reason))
        for client, reply in sorted(
            ((self._evaluating[proxy.cid], reply) for proxy, reply in results), key=itemgetter(0)
        ):
            try:
                refuse_endless(reply.metrics)
            except WireError as error:
                LOGGER.warning("Round %d: client %d failed to evaluate: %s", number, client, error)
                continue
            if counts(reply.num_examples):
                found[client] = reply
            else:
                _leave_out(client, number, "num_examples", reply.num_examples)
        examples = {client: float(reply.num_examples) for client, reply in found.items()}
        weights = bounded(examples, self._config.reported_values.example_clip)
        told = [(weights[client], finite_metrics({"loss": found[client].loss}, client, number)) for client in found]
        loss = cast(float | None, mean_metrics(told, number).get("loss"))
        function = self._options.evaluate_metrics_aggregation_fn
        if function is None or not found:
            return loss, {}
        return loss, aggregated_pairs({client: found[client].metrics for client in found}, weights, function, number)

    def _refuse_changed(self, parameters: Parameters) -> None:
        """Raise ConfigError if another strategy has changed the model, such as a wrapper that adds noise."""
        if parameters is not self._returned and parameters.tensors != self._returned.tensors:
            raise ConfigError(ALONE)

    def _refuse_overrun(self, server_round: int) -> None:
        """Raise ConfigError if Flower's server has more rounds than the strategy's setting `rounds`."""
        run = self._inner.run
        over = server_round > most_rounds(self._inner) and not run.completed
        if over and not run.context.evaluation.stop_at_target:
            raise ConfigError(
                f"The {run.context.run.rounds} 'rounds' of the strategy are over, and the ServerConfig's num_rounds "
                "are more: give both the same number. What was trained so far is on record."
            )

    # Both -----------------------------------------------------------------------------------------------------

    def _users_model(self) -> SentModel:
        """The global model, as the user's arrays."""
        return self._clients.users_model(sent_model(*self._inner.run.model))

    def _test_initial(self) -> tuple[float, dict[str, Scalar]] | None:
        """Test the initial model with the user's function."""
        self._test(*self._inner.run.model)
        return self._tested

    def _test(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> Evaluation | None:
        """Test a model with the user's function; None if it tests nothing."""
        arrays = list(self._clients.users_model(sent_model(parameters, buffers)).arrays)
        function = self._evaluate_fn
        self._tested = None if function is None else function(self._inner.run.record.round, arrays, {})
        if self._tested is None:
            return None
        found, key = numbers(self._tested[1]), self._options.score_key
        score = score_of(found, key)
        found.pop(key or SCORE, None)
        return Evaluation(float(self._tested[0]), score, found)


def _resume(strategy: SelectionStrategy, folder: RunFolder) -> tuple[dict[str, int], dict[int, float]]:
    """Restore the strategy from the folder's checkpoint; return the nodes' numbers and the clients' examples.

    The records round the examples up. The roster's are exact, unless `example-clip` bounds them.
    """
    if folder.saved is None:
        return {}, {}
    strategy.restore(folder.saved)
    rows = read_rows(folder.path / "clients.jsonl", check_client)
    nodes = {str(node): client for client, node in enumerate(folder.saved["enrolment/owners"]) if node}
    told = {row["client"]: row["examples"] for row in rows if "examples" in row}
    if not strategy.run.context.reported_values.example_clip:
        told = {client: float(strategy.roster.examples[client]) for client in told}
    return nodes, told


def _leave_out(client: int, number: int, key: str, told: object) -> None:
    """Log a client whose evaluation has no usable number of examples."""
    LOGGER.warning(
        "Round %d: the evaluation of client %d is left out: its metric %s must be above 0 and at most %d. It is %s.",
        *(number, client, one_line(key), MOST_EXAMPLES, one_line(told)),
    )


def _config_of_round(
    constant: ConfigRecord | None, function: Callable[[int], Mapping[str, Any]] | None
) -> Callable[[int], Mapping[str, Any]]:
    """Function of the round that returns the user's config: the `constant`, and that of the user's `function`."""

    @lru_cache(maxsize=1)  # the clients of a round get the same config, also from a function that draws
    def config(number: int) -> Mapping[str, Any]:
        return {**(constant or {}), **(function(number) if function is not None else {})}

    return config


def _log_round(row: Row, *, measured: bool) -> None:
    FLOWER_LOGGER.info("fedsel: round %d: %s", row["round"], describe(row, measured=measured))
