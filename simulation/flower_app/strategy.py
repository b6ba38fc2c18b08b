"""Strategy for a user's own ServerApp: any of fedsel's, over the model and the clients that the app has."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fedsel_app.config import ConfigError, Value
from fedsel_app.messages import Config
from fedsel_app.models.array_layout import ArrayLayout
from fedsel_app.network.links import make_links
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.listeners import RoundListener
from fedsel_app.records.reading import check_client, read_rows
from fedsel_app.records.run_folder import RunFolder, describe
from fedsel_app.records.schema import Row
from fedsel_app.records.trackers import add_trackers
from simulation.experiments.configuration import AppConfig
from simulation.flower_app.app_clients import AppClients, RoundConfig
from simulation.flower_app.identities import Identities
from simulation.flower_app.proxies import AppClientManager
from simulation.flower_app.settings import app_config, recorded
from simulation.flower_app.testing import CentralTest, EvaluateFn
from simulation.flower_app.unkept_records import UnkeptRecords
from strategies.base import SelectionStrategy
from strategies.run_context import RunContext

FLOWER_LOGGER = logging.getLogger("flwr")
FRUITLESS_ROUNDS = 3
"""Rounds without a single usable update from anybody after which the run ends with an error."""
ClientFailures = list[tuple[ClientProxy, FitRes] | BaseException]
TestFailures = list[tuple[ClientProxy, EvaluateRes] | BaseException]


def strategy(
    name: str,
    *,
    parameters: Parameters | Sequence[NDArray[Any]],
    clients: int,
    cohort: int,
    evaluate_fn: EvaluateFn | None = None,
    fit_config: Config | RoundConfig | None = None,
    evaluate_config: Config | RoundConfig | None = None,
    statistics: Sequence[int] | None = None,
    out: str | Path | None = None,
    **settings: Value,
) -> Strategy:
    """Build a Flower strategy for a ServerApp of your own, in front of your own clients.

    Parameters
    ----------
    name
        Selection method, as `fedsel methods` lists them, or package.module:Class.
    parameters
        The initial model: a list of arrays as your clients send it, or Flower's Parameters.
    clients, cohort
        Number of clients (SuperNodes), and of those that train in a round.
    evaluate_fn
        (round, arrays, {}) -> (loss, metrics) or None, as Flower's own strategies have it; the metric "accuracy" is the
        score of the records. None: no central test.
    fit_config, evaluate_config
        Config of your clients' `fit` and `evaluate`, or a function of the round.
    statistics
        Positions of BatchNorm's running statistics among the arrays; None: found by their order in a state_dict.
    out
        Folder of the records; None: none are kept. With `resume=True` the run in it goes on.
    settings
        Settings of fedsel's, underscores for dashes: rounds (the num_rounds of your ServerConfig), seed, compressor,
        kept_fraction, links and so on, and the method's own. See docs/flower-app.md.

    Raises
    ------
    ConfigError
        For settings that cannot be run, and a folder that cannot be written.
    """
    arrays = parameters_to_ndarrays(parameters) if isinstance(parameters, Parameters) else list(parameters)
    folder: dict[str, Value] = {} if out is None else {"out": str(Path(out).expanduser().absolute())}
    config = app_config(name, {**settings, "clients": clients, "cohort": cohort, **folder})
    layout = ArrayLayout(arrays, statistics)
    if config.strategy.needs(config.method).class_biases and not layout.has_class_biases:
        raise ConfigError(
            f"The strategy {name} reads the biases of the output layer, and the last arrays of 'parameters' are no "
            "matrix with a vector of its outputs behind it."
        )
    test = CentralTest(evaluate_fn)
    if out is None and config.records.trackers:
        raise ConfigError("The 'track' parameter needs a folder of the records: set 'out', or leave it out.")
    recorder = UnkeptRecords() if out is None else _run_folder(config)
    recorder.listeners.append(RoundListener(_log_round))
    initial, buffers = layout.initial()
    context = RunContext(
        **config.groups(),
        method=config.method,
        initial=initial,
        buffers=buffers,
        layers=layout.layers,
        classes=layout.classes,
        links=make_links(config.network, clients, config.run.seed),
        evaluate=test.last,
        recorder=recorder,
        losses_optional=True,
    )
    inner = config.strategy(context)
    nodes, examples = _resume(inner, recorder) if isinstance(recorder, RunFolder) else ({}, {})
    users = AppClients(config, layout, inner.roster, Identities(nodes), examples)
    users.fit_config, users.evaluate_config = _by_round(fit_config), _by_round(evaluate_config)
    return AppStrategy(inner, users, test)


def _run_folder(config: AppConfig) -> RunFolder:
    """The run folder, opened."""
    folder = RunFolder(Path(config.records.out), recorded(config), resume=config.records.resume)
    add_trackers(folder, config.records.trackers, recorded(config))
    FLOWER_LOGGER.info("fedsel: records in %s", folder.path)
    return folder


def _resume(strategy: SelectionStrategy, folder: RunFolder) -> tuple[dict[str, int], dict[int, int]]:
    """Restore the strategy from the folder's checkpoint; the nodes' numbers, and the examples of clients, on record."""
    if folder.saved is None:
        return {}, {}
    strategy.restore(folder.saved)
    rows = read_rows(folder.path / "clients.jsonl", check_client)
    nodes = {str(node): client for client, node in enumerate(folder.saved["enrolment/owners"]) if node}
    return nodes, {row["client"]: row["examples"] for row in rows if "examples" in row}


def _by_round(config: Config | RoundConfig | None) -> RoundConfig:
    """The config as a function of the round."""
    if callable(config):
        return config
    fixed = dict(config or {})
    return lambda server_round: fixed


def _log_round(row: Row) -> None:
    FLOWER_LOGGER.info("fedsel: round %d: %s", row["round"], describe(row))


class AppStrategy(Strategy):
    """Flower strategy that carries out a selection method's rounds with a user's own clients."""

    def __init__(self, inner: SelectionStrategy, clients: AppClients, test: CentralTest) -> None:
        self._inner, self._clients, self._test = inner, clients, test
        timeouts = ReplyTimeout(inner.context.replies.reply_timeout_s)
        self._manager = AppClientManager(clients, timeouts)
        self._flat = inner.initialize_parameters(self._manager)
        self._blas = ThreadpoolController()

    def __repr__(self) -> str:
        return f"fedsel strategy {self._inner.name}"

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial model, or that of the checkpoint."""
        return self._clients.model(self._flat)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Select the round's cohort. Raises ConfigError where the clients cannot do what the method needs."""
        self._manager.manager = client_manager
        self._refuse_overrun(server_round)
        # One BLAS thread: sums of the methods' linear algebra have one order then, on every machine.
        with self._blas.limit(limits=1, user_api="blas"):
            try:
                return self._inner.configure_fit(server_round, self._flat, self._manager)
            except ConfigError as error:
                if self._clients.any_enrolled or not self._clients.refusal:
                    raise
                raise ConfigError(self._clients.refusal) from error

    def aggregate_fit(
        self, server_round: int, results: list[tuple[ClientProxy, FitRes]], failures: ClientFailures
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Aggregate what came back."""
        inner = self._inner
        inner.context.recorder.clients(self._clients.count_examples(inner.completed + server_round))
        with self._blas.limit(limits=1, user_api="blas"):
            flat, metrics = inner.aggregate_fit(server_round, results, failures)
        if flat is None:
            return None, metrics
        self._flat = flat
        return self._clients.model(flat), metrics

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Evaluate the model by the user's function: before round 1, and every `eval-every` rounds."""
        inner = self._inner
        number, every = inner.completed + server_round, inner.context.evaluation.eval_every
        if inner.ended or (server_round and not inner.round_count.evaluates(number, every)):
            return None
        result = self._test.evaluate(number, parameters_to_ndarrays(parameters))
        if result is not None and server_round:
            inner.evaluate(server_round, self._flat)
        return result

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """With `client_eval`, have every client evaluate the model."""
        instructions = self._inner.configure_evaluate(server_round, self._flat, self._manager)
        if not instructions:
            self._refuse_fruitless(server_round)
        return instructions

    def aggregate_evaluate(
        self, server_round: int, results: list[tuple[ClientProxy, EvaluateRes]], failures: TestFailures
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Means over the clients' own tests."""
        found = self._inner.aggregate_evaluate(server_round, results, failures)
        self._refuse_fruitless(server_round)
        return found

    def _refuse_overrun(self, server_round: int) -> None:
        """Raise ConfigError where Flower's server has more rounds than the strategy was told."""
        inner = self._inner
        over = server_round > inner.round_count.most and not inner.completed
        if over and not inner.context.evaluation.stop_at_target:
            raise ConfigError(
                f"The {inner.context.run.rounds} 'rounds' of the strategy are over, and the ServerConfig's num_rounds "
                "are more: give both the same number. What was trained so far is on record."
            )

    def _refuse_fruitless(self, server_round: int) -> None:
        """Raise RuntimeError where the first rounds, or all of them, brought no usable update."""
        inner, number = self._inner, self._inner.completed + server_round
        if number < min(FRUITLESS_ROUNDS, inner.round_count.most) or inner.roster.last_returned.any():
            return
        reason = self._clients.last_failure or "no client was selected, or none was connected"
        raise RuntimeError(f"In {number} rounds no client brought a usable update. The last failure: {reason}")
