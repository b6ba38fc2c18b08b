"""Strategy of a user's ServerApp: `start` runs all rounds with the user's own model and clients, as Flower's own do."""

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.run import score_bounds
from fedsel_app.imports import LEGACY
from fedsel_app.messages.instructions import LocalTestInstruction
from fedsel_app.network.links import make_links
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.reading import check_client, read_rows
from fedsel_app.records.run_folder import (
    RunFolder,
    UnkeptRecords,
    describe_round,
    is_finished,
    read_rounds,
    refuse_other_settings,
)
from fedsel_app.records.schema import RoundRecord
from simulation.apps.client.array_layout import ArrayLayout
from simulation.apps.server.results import (
    aggregated_records,
    bounded_examples,
    keep,
    note_left_out,
    numeric_metrics,
    read_model,
    recall,
)
from simulation.apps.server.settings import AppOptions, app_config, recorded, round_config
from simulation.apps.server.transports import UserGrid, UserReply, score_of
from simulation.apps.server.user_clients import UserClients, counts, describe_examples
from strategies.base import SelectionStrategy
from strategies.method import evaluates
from strategies.round.federation import SentModel, sent_model
from strategies.round.method_checks import build
from strategies.round.replies import replies_among
from strategies.run_context import Evaluation, RunContext
from strategies.run_round import run_rounds

LOGGER, FLOWER_LOGGER = logging.getLogger("fedsel"), logging.getLogger("flwr")
ROUNDS = 3
"""Default of `num_rounds` in Flower's own strategies."""
NO_EVALUATE = "No evaluate function registered"
"""Part of the error of a client app without `@app.evaluate()`."""
SCORE = "accuracy"
"""Name of the score in the records without `score_key`."""
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
"""(round, arrays) -> metrics of the server's test; None: no test in that round."""


class AppStrategy:
    """Flower strategy that runs the rounds of a selection method with a user's own model and clients."""

    _inner: SelectionStrategy
    _clients: UserClients
    _recorder: RunFolder | UnkeptRecords

    def __init__(self, name: str, settings: dict[str, Value], options: AppOptions) -> None:
        self._name, self._settings, self._options = name, settings, options
        self._config = app_config(name, settings)
        self._blas = ThreadpoolController()

    def __repr__(self) -> str:
        return f"fedsel strategy {self._name}"

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        should_stop: Callable[[int, Result], bool] | None = None,
    ) -> Result:
        """Run all rounds with the clients behind Flower's grid, as Flower's own strategies do.

        Returns the final model, and the metrics of each round: the clients' metrics, weighted by examples, and those of
        `evaluate_fn`.

        Raises ConfigError if the clients cannot do what the method needs, or `num_rounds` differs from the setting
        `rounds`. Raises RunFailed if three rounds in a row, or all rounds, bring no usable update.

        Parameters
        ----------
        grid, initial_arrays, train_config, evaluate_config, evaluate_fn : as in
            `flwr.serverapp.strategy.Strategy.start`
        num_rounds : rounds of the run; None: the setting `rounds`, or if that is not set 3, as in Flower
        timeout : timeout of the first answers in seconds; None: the setting `reply-timeout-s`
        should_stop : as in Flower from 1.43 on, on any release: (round, result so far) -> True to end the run after the
            round
        """
        self._set_rounds(int(self._settings.get("rounds", ROUNDS) if num_rounds is None else num_rounds))
        model = {name: array.numpy() for name, array in initial_arrays.items()}
        folder, options = Path(self._config.records.out), self._options
        configs = {
            "train": round_config(train_config, options.train_config_fn),
            "evaluate": round_config(evaluate_config, options.evaluate_config_fn),
        }
        timeouts = ReplyTimeout(self._config.replies.reply_timeout_s if timeout is None else timeout)
        carrier = UserGrid(grid, timeouts, list(model), configs, options)
        layout = ArrayLayout(model, options.statistics)
        self._result, self._evaluate_fn = Result(), evaluate_fn
        if self._config.records.resume and is_finished(folder):
            refuse_other_settings(folder, recorded(self._config, layout))
            FLOWER_LOGGER.info("fedsel: the run in %s is finished; its result is returned", folder)
            result = recall(folder, len(read_rounds(folder)))
            result.arrays = carrier.named(SentModel(tuple(layout.restore(*read_model(folder)))))
            return result
        self._open(layout, carrier)
        if self._config.records.out:
            self._result = recall(folder, self._inner.run.completed)
        with closing(self._recorder):
            self._run_rounds(should_stop)
        self._result.arrays = self._users_model()
        return self._result

    def summary(self) -> NoReturn:
        """Raise ConfigError, for a strategy of Flower's that wraps this one, such as those for privacy."""
        raise ConfigError(
            "Leave Flower's own strategies, wrappers and secure aggregation out: fedsel's strategy selects the clients,"
            " checks each update and aggregates them itself, and what another strategy changes would be lost. "
            "Differential privacy is 'dp-clip-norm' and 'dp-noise-multiplier'."
        )

    def initialize_parameters(self, *nothing: Any, **named: Any) -> NoReturn:
        """Raise ConfigError, for Flower's legacy server, which begins with this call."""
        raise ConfigError(LEGACY)

    def _set_rounds(self, num_rounds: int) -> None:
        """Set the number of rounds. Raises ConfigError if another number was set before."""
        if self._settings.get("rounds", num_rounds) != num_rounds:
            raise ConfigError(
                f"The strategy has {self._settings['rounds']} 'rounds', but start has num_rounds={num_rounds}: "
                "set only one of them."
            )
        self._config = app_config(self._name, {**self._settings, "rounds": num_rounds})

    def _open(self, layout: ArrayLayout, carrier: UserGrid) -> None:
        """Start or resume the run of a model. Raises ConfigError if the method does not suit the model."""
        config = self._config
        needs = config.strategy.needs(config.method)
        if (needs.class_biases or needs.output_biases) and not layout.has_class_biases:
            raise ConfigError(
                f"The strategy {self._name} reads the biases of the output layer, and the last arrays of the initial "
                "model are no matrix with a vector of its outputs behind it."
            )
        if needs.class_biases or needs.output_biases:
            FLOWER_LOGGER.info(
                "fedsel: %s reads the biases of the output layer: %s of the initial model, with %d outputs. If another "
                "layer has the outputs, put its arrays last.",
                *(self._name, layout.layers[-1].name, layout.classes),
            )
        recorder: RunFolder | UnkeptRecords = UnkeptRecords()
        if config.records.out:
            recorder = RunFolder(Path(config.records.out), recorded(config, layout), resume=config.records.resume)
            FLOWER_LOGGER.info("fedsel: records in %s", recorder.path)
        self._recorder = recorder
        measured = config.network.links == "measured"
        recorder.listeners.append(
            lambda row: FLOWER_LOGGER.info("fedsel: round %d: %s", row["round"], describe_round(row, measured=measured))
        )
        initial, buffers = layout.initial()
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
            classes_told=True,
            score=self._options.score_key or SCORE,
        )
        self._inner = build(config.strategy, context)
        # A user's client may weigh a fraction of an example.
        roster = self._inner.run.roster
        roster.examples = roster.examples.astype(np.float64)
        nodes, examples = _resume(self._inner, recorder) if isinstance(recorder, RunFolder) else ({}, {})
        self._clients = UserClients(config, layout, self._inner.run, carrier, nodes, examples)

    def _run_rounds(self, should_stop: Callable[[int, Result], bool] | None) -> None:
        """Run the remaining rounds. Before a round's checkpoint, its metrics are in the result and the run folder.

        Raises ConfigError if the clients cannot do what the method needs.
        """
        run, out, result = self._inner.run, self._config.records.out, self._result

        def keep_round(number: int) -> None:
            if number:
                self._keep_metrics(run.record)
            if out:
                keep(result, number, Path(out))

        def stop(number: int) -> None:
            if should_stop is not None:
                result.arrays = self._users_model()
                if should_stop(number, result) and not run.ended:
                    run.end()

        self._recorder.listeners.append(lambda row: keep_round(row["round"]))
        if run.completed:
            stop(run.completed)
        else:
            self._test(*run.model)
            keep_round(0)
        # With one BLAS thread the sums in the methods' linear algebra have the same order on every machine.
        with self._blas.limit(limits=1, user_api="blas"):
            try:
                run_rounds(self._inner, self._clients, lambda record: stop(record.round))
            except ConfigError as error:
                if self._clients.enrolments or not self._clients.refusal:
                    raise
                raise ConfigError(self._clients.refusal) from error

    def _users_model(self) -> ArrayRecord:
        """The global model, as the user's arrays."""
        return self._clients.carrier.named(self._clients.users_model(sent_model(*self._inner.run.model)))

    def _test(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> Evaluation | None:
        """Test a model with the user's function; None if it tests nothing."""
        if self._evaluate_fn is None:
            return None
        number, carrier = self._inner.run.record.round, self._clients.carrier
        metrics = self._evaluate_fn(number, carrier.named(self._clients.users_model(sent_model(parameters, buffers))))
        if metrics is None:
            return None
        self._result.evaluate_metrics_serverapp[number] = metrics
        numbers, key = numeric_metrics(metrics), self._options.score_key
        score = score_of(numbers, key)
        name, (low, high) = key or SCORE, score_bounds(key or SCORE)
        if score < low or score > high:
            raise ConfigError(
                f"Let evaluate_fn return the metric {name} as a number from {low:g} to {high:g}. It is {score:g}."
            )
        return Evaluation(
            carrier.loss_of(numbers), score, {key: value for key, value in numbers.items() if key != name}
        )

    def _keep_metrics(self, record: RoundRecord) -> None:
        """Keep the clients' metrics of a round."""
        number, options, result = record.round, self._options, self._result
        roster, replies = self._inner.run.roster, self._clients.trained
        trained = {client: replies[client] for client in sorted(replies) if roster.last_returned[client] == number}
        weights = {client: float(roster.examples[client]) for client in trained}
        tested = self._tested_by_clients(number)
        tests = {client: float(reply.examples) for client, reply in tested.items()}
        bounds = bounded_examples(tests, self._config.reported_values.example_clip)
        for metrics, replies, examples, function in (
            (result.train_metrics_clientapp, trained, weights, options.train_metrics_aggr_fn),
            (result.evaluate_metrics_clientapp, tested, bounds, options.evaluate_metrics_aggr_fn),
        ):
            records = {client: reply.content for client, reply in replies.items()}
            aggregate = (
                aggregated_records(records, examples, options.weighted_by_key, function, number) if records else None
            )
            if aggregate is not None:
                metrics[number] = aggregate

    def _tested_by_clients(self, number: int) -> dict[int, UserReply]:
        """Let clients evaluate the model after a round; the usable replies, by ascending partition id.

        With `client-eval` the round itself has asked all clients.
        """
        run, options, key = self._inner.run, self._options, self._options.weighted_by_key
        if not evaluates(self._inner, number, self._inner.run.context.evaluation.eval_every):
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
            reply = tested.pop(client)
            if reply.examples or key not in reply.metrics:  # with 0 examples a client has no weight, as in FedAvg
                note_left_out(client, number, key, describe_examples(reply, key))
        return dict(sorted(tested.items()))


def _resume(strategy: SelectionStrategy, folder: RunFolder) -> tuple[dict[str, int], dict[int, float]]:
    """Restore the strategy from the folder's checkpoint; return the nodes' numbers and the clients' examples.

    The records round the examples up. The roster's are exact, unless `example-clip` bounds them.
    """
    if folder.saved is None:
        return {}, {}
    strategy.restore(folder.saved)
    rows = read_rows(folder.path / "clients.jsonl", check_client)
    nodes = {str(node): client for client, node in enumerate(folder.saved["enrolment/owners"]) if node}
    examples = {row["client"]: row["examples"] for row in rows if "examples" in row}
    if not strategy.run.context.reported_values.example_clip:
        examples = {client: float(strategy.run.roster.examples[client]) for client in examples}
    return nodes, examples
