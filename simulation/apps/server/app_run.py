"""Run of a user's Flower app: what Flower's two APIs share, from the initial model to the test of each round's."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.common import NDArrays, Parameters, Scalar, parameters_to_ndarrays
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.run import score_bounds
from fedsel_app.network.links import make_links
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.reading import check_client, read_rows
from fedsel_app.records.run_folder import RunFolder, UnkeptRecords, describe_round
from fedsel_app.records.schema import Row
from fedsel_app.records.trackers import add_trackers
from simulation.apps.client.array_layout import ArrayLayout
from simulation.apps.server.client_metrics import numeric_metrics
from simulation.apps.server.settings import AppOptions, EvaluateFn, app_config, recorded
from simulation.apps.server.transports import score_of
from simulation.apps.server.user_clients import UserClients
from strategies.base import SelectionStrategy
from strategies.round.federation import Reply, SentModel, sent_model
from strategies.round.method_checks import build
from strategies.run_context import Evaluation, RunContext

FLOWER_LOGGER = logging.getLogger("flwr")
SCORE = "accuracy"
"""Name of the score in the records without `score_key`."""


class AppRun:
    """Run of a selection method with a user's own model and clients."""

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
        self._tested: tuple[Any, dict[str, Scalar]] | None = None
        if (parameters := options.parameters) is not None and "rounds" not in settings:
            raise ConfigError(
                "Set 'rounds' to the num_rounds of your ServerConfig: methods and the summary need it, and Flower's "
                "legacy server does not tell it. In the Message API, give the initial model as start's "
                "'initial_arrays' instead of 'parameters'."
            )
        if isinstance(parameters, Parameters):
            self.open(parameters_to_ndarrays(parameters), options.evaluate_fn)
        elif parameters is not None:
            self.open(list(parameters), options.evaluate_fn)

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
        if needs.class_biases or needs.output_biases:
            FLOWER_LOGGER.info(
                "fedsel: %s reads the biases of the output layer: %s of the initial model, with %d outputs. If another "
                "layer has the outputs, put its arrays last.",
                *(self._name, layout.layers[-1].name, layout.classes),
            )
        recorder: RunFolder | UnkeptRecords = UnkeptRecords()
        if config.records.out:
            recorder = RunFolder(Path(config.records.out), recorded(config, layout), resume=config.records.resume)
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
            classes_told=True,
            score=self._options.score_key or SCORE,
        )
        self._inner = build(config.strategy, context)
        # A user's client may weigh a fraction of an example.
        roster = self._inner.run.roster
        roster.examples = roster.examples.astype(np.float64)
        nodes, examples = _resume(self._inner, recorder) if isinstance(recorder, RunFolder) else ({}, {})
        self._clients = UserClients(config, layout, self._inner.run, nodes, examples)

    def _layout(self, arrays: NDArrays, names: Sequence[str]) -> ArrayLayout:
        """Layout of the model's arrays, with their names if it has names."""
        model = dict(zip(names, arrays, strict=True)) if names else arrays
        return ArrayLayout(model, self._options.statistics)

    def _accepted(self, number: int) -> tuple[dict[int, Reply], dict[int, float]]:
        """The replies of a round whose updates were aggregated, and their examples, by ascending partition id."""
        roster, trained = self._inner.run.roster, self._clients.trained
        accepted = {client: trained[client] for client in sorted(trained) if roster.last_returned[client] == number}
        return accepted, {client: float(roster.examples[client]) for client in accepted}

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
        metrics, key = numeric_metrics(self._tested[1]), self._options.score_key
        score = score_of(metrics, key)
        name, (low, high) = key or SCORE, score_bounds(key or SCORE)
        if score < low or score > high:
            raise ConfigError(
                f"Let evaluate_fn return the metric {name} as a number from {low:g} to {high:g}. It is {score:g}."
            )
        metrics.pop(name, None)
        loss = self._tested[0]
        return Evaluation(None if loss is None else float(loss), score, metrics)


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


def _log_round(row: Row, *, measured: bool) -> None:
    FLOWER_LOGGER.info("fedsel: round %d: %s", row["round"], describe_round(row, measured=measured))
