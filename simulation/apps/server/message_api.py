"""Flower's Message API for a user's ServerApp: `start` runs all rounds, as in Flower's own strategies."""

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.common import NDArrays, Scalar
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedsel_app.config import ConfigError
from fedsel_app.messages.instructions import LocalTestInstruction
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.run_folder import is_finished, read_rounds, refuse_other_settings
from fedsel_app.records.schema import RoundRecord
from simulation.apps.server.app_run import AppRun
from simulation.apps.server.client_metrics import aggregated_records, bounded_examples, note_left_out, numeric_metrics
from simulation.apps.server.flowers_words import ALONE
from simulation.apps.server.kept_result import keep, read_model, recall
from simulation.apps.server.settings import LEGACY, app_config, recorded, round_config
from simulation.apps.server.transports import UserGrid, UserReply
from simulation.apps.server.user_clients import counts, describe_examples
from strategies.method import evaluates
from strategies.round.federation import Reply, SentModel, sent_model
from strategies.round.replies import replies_among
from strategies.run_round import run_rounds

LOGGER, FLOWER_LOGGER = logging.getLogger("fedsel"), logging.getLogger("flwr")
ROUNDS = 3
"""Default of `num_rounds` in Flower's own strategies."""
NO_EVALUATE = "No evaluate function registered"
"""Part of the error of a client app without `@app.evaluate()`."""


class MessageApi(AppRun):
    """The methods that a user's `@app.main()` calls."""

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
    ) -> Result:
        """Run all rounds with the clients behind Flower's grid, as Flower's own strategies do.

        Parameters
        ----------
        grid, initial_arrays, train_config, evaluate_config, evaluate_fn
            As in `flwr.serverapp.strategy.Strategy.start`.
        num_rounds
            Rounds of the run; None: the setting `rounds`, or if that is not set 3, as in Flower.
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
        self._options.refuse_changed(
            LEGACY, "Leave {!r} out of strategy(...): start has 'initial_arrays', 'evaluate_fn' and the configs."
        )
        self._set_rounds(int(self._settings.get("rounds", ROUNDS) if num_rounds is None else num_rounds))
        names, arrays = list(initial_arrays), [array.numpy() for array in initial_arrays.values()]
        folder, result = Path(self._config.records.out), Result()
        configs = {
            "train": round_config(train_config, self._options.train_config_fn),
            "evaluate": round_config(evaluate_config, self._options.evaluate_config_fn),
        }
        timeouts = ReplyTimeout(self._config.replies.reply_timeout_s if timeout is None else timeout)
        carrier = UserGrid(grid, timeouts, names, configs, self._options)

        def test(number: int, arrays: NDArrays, _: dict[str, Scalar]) -> tuple[float | None, dict[str, Scalar]] | None:
            metrics = None if evaluate_fn is None else evaluate_fn(number, carrier.named(SentModel(tuple(arrays))))
            if metrics is None:
                return None
            result.evaluate_metrics_serverapp[number] = metrics
            numbers = numeric_metrics(metrics)
            return carrier.loss_of(numbers), dict(numbers)

        if self._config.records.resume and is_finished(folder):
            layout = self._layout(arrays, names)
            refuse_other_settings(folder, recorded(self._config, layout))
            FLOWER_LOGGER.info("fedsel: the run in %s is finished; its result is returned", folder)
            result = recall(folder, len(read_rounds(folder)))
            result.arrays = carrier.named(SentModel(tuple(layout.restore(*read_model(folder)))))
            return result
        self.open(arrays, test, names)
        if self._config.records.out:
            result = recall(folder, self._inner.run.completed)
        self._clients.carrier = carrier
        with closing(self._recorder):
            self._run_rounds(result, carrier, should_stop)
        result.arrays = carrier.named(self._users_model())
        return result

    def summary(self) -> NoReturn:
        """Raise ConfigError, for a strategy of Flower's that wraps this one, such as those for privacy."""
        raise ConfigError(ALONE)

    def _run_rounds(self, result: Result, carrier: UserGrid, should_stop: Callable[[int, Result], bool] | None) -> None:
        """Run the remaining rounds. Before a round's checkpoint, its metrics are in the result and the run folder."""
        run, out = self._inner.run, self._config.records.out

        def keep_round(number: int) -> None:
            if number:
                self._keep_metrics(result, run.record)
            if out:
                keep(result, number, Path(out))

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
        bounds = bounded_examples(tests, self._config.reported_values.example_clip)
        for metrics, replies, examples, function in (
            (result.train_metrics_clientapp, trained, weights, options.train_metrics_aggr_fn),
            (result.evaluate_metrics_clientapp, tested, bounds, options.evaluate_metrics_aggr_fn),
        ):
            records = {client: reply.content for client, reply in replies.items() if isinstance(reply, UserReply)}
            aggregate = (
                aggregated_records(records, examples, options.weighted_by_key, function, number) if records else None
            )
            if aggregate is not None:
                metrics[number] = aggregate

    def _tested_by_clients(self, number: int) -> dict[int, Reply]:
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

    def _set_rounds(self, num_rounds: int) -> None:
        """Set the number of rounds. Raises ConfigError if another number was set before."""
        if self._settings.get("rounds", num_rounds) != num_rounds:
            raise ConfigError(
                f"The strategy has {self._settings['rounds']} 'rounds', but start has num_rounds={num_rounds}: "
                "set only one of them."
            )
        self._config = app_config(self._name, {**self._settings, "rounds": num_rounds})
