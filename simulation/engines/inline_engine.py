"""Inline engine: one simulated run in this process, whose clients answer one after the other; no Ray, no workers."""

import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.client import Client
from flwr.common import (
    Context,
    DisconnectRes,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
    ReconnectIns,
    RecordDict,
    Scalar,
)
from flwr.server.client_proxy import ClientProxy
from flwr.server.server import EvaluateResultsAndFailures

from simulation.experiments.configuration import AppConfig
from simulation.wiring.client import make_client
from simulation.wiring.folders import INTERRUPTED, discard_states, run_folder, stop_sentence
from simulation.wiring.pooled_server import PooledServer, results_and_failures
from simulation.wiring.preflight import refuse_unrunnable
from simulation.wiring.server import make_strategy, open_run_folder
from strategies.base import SelectionStrategy
from strategies.round.connections import parallel

ONE_MESSAGE = 1
"""Messages into which a question to all clients is divided: this process answers for all of them."""


def simulate(config: AppConfig, on_round: Callable[[dict[str, Any]], None], *, verbose: bool = False) -> Path:
    """Simulate a run to its end, or with `resume` go on from its last checkpoint; return the run folder.

    `on_round` is called with the record of each finished round. Ctrl-C ends the run between two steps of a client, and
    raises SystemExit after a sentence that says how to go on. Errors of the server are raised here.
    """
    refuse_unrunnable(config)
    if not verbose:
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
    folder = run_folder(config)
    config = replace(config, records=replace(config.records, out=str(folder), state_dir=str(folder)))
    with closing(open_run_folder(config, on_round)) as recorder:
        try:
            strategy = make_strategy(config, recorder, pool=ONE_MESSAGE)
            run_rounds(strategy, (InlineClientProxy(config, client) for client in range(config.run.clients)))
        except KeyboardInterrupt:
            sys.stderr.write(stop_sentence("Interrupted", folder))
            raise SystemExit(INTERRUPTED) from None
    discard_states(folder)
    return folder


def run_rounds(strategy: SelectionStrategy, proxies: Iterable[ClientProxy]) -> None:
    """Run the rounds that are left of `strategy` with the clients behind `proxies`, in Flower's own loop."""
    server = InlineServer(strategy)
    for proxy in proxies:
        server.client_manager().register(proxy)
    server.fit(strategy.round_count.most - strategy.completed, timeout=None)


class InlineServer(PooledServer):
    """Pooled server whose clients test a model one after the other in this thread, instead of each in its own."""

    def evaluate_round(
        self, server_round: int, timeout: float | None
    ) -> tuple[float | None, dict[str, Scalar], EvaluateResultsAndFailures] | None:
        """Have the clients test the model; None where no client is instructed."""
        instructions = self.strategy.configure_evaluate(server_round, self.parameters, self._client_manager)
        if not instructions:
            return None
        ins_of = dict(instructions)
        answers = results_and_failures(
            parallel(list(ins_of), lambda proxy: proxy.evaluate(ins_of[proxy], timeout, server_round), at_once=1)
        )
        return *self.strategy.aggregate_evaluate(server_round, *answers), answers


class InlineClientProxy(ClientProxy):
    """Client proxy that answers in this process, by a client built anew for every message, as in any engine.

    Parameters
    ----------
    client : partition id
    pooled : the client can answer for others too; see `clients.pooled`
    """

    def __init__(self, config: AppConfig, client: int, *, cid: str = "", pooled: bool = True) -> None:
        super().__init__(cid or str(client))
        self.client = client
        self._config, self._pooled = config, pooled

    def _build(self) -> Client:
        context = Context(
            run_id=0,
            node_id=self.client,
            node_config={"partition-id": self.client, "num-partitions": self._config.run.clients},
            state=RecordDict(),
            run_config={},
        )
        return make_client(self._config, context, pooled=self._pooled)

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        """The client's properties."""
        return self._build().get_properties(ins)

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """The client's reply after training or calibration."""
        return self._build().fit(ins)

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """The client's reply after a probe or a test."""
        return self._build().evaluate(ins)

    def get_parameters(self, ins: GetParametersIns, timeout: float | None, group_id: int | None) -> GetParametersRes:
        """Raise NotImplementedError: the server starts from its own model."""
        raise NotImplementedError

    def reconnect(self, ins: ReconnectIns, timeout: float | None, group_id: int | None) -> DisconnectRes:
        """Raise NotImplementedError: the server ends without a word to its clients."""
        raise NotImplementedError
