"""Flower's server loop over clients in this process: real strategy, real clients, no Ray, milliseconds a round."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from flwr.client import Client
from flwr.common import (
    Context,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    GetPropertiesRes,
    RecordDict,
)
from flwr.server import Server, SimpleClientManager

from fedsel_app.records.run_folder import RunFolder
from simulation.experiments.configuration import AppConfig, resolve
from simulation.wiring.client import make_client
from simulation.wiring.server import make_run_context
from strategies.base import SelectionStrategy
from strategies.testing.fakes import FakeClientProxy

ONE_AT_A_TIME = Lock()
"""A process serves one message at a time, in every engine; its clients share one model."""
ReplyHook = Callable[[int, FitIns, FitRes], FitRes]


class InProcessProxy(FakeClientProxy):
    """Serves every message by a client built anew, as Flower does it."""

    def __init__(self, cid: str, build: Callable[[], Client], client: int, on_fit: ReplyHook | None = None) -> None:
        super().__init__(cid)
        self._build = build
        self._client = client
        self._on_fit = on_fit

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        with ONE_AT_A_TIME:
            return self._build().get_properties(ins)

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        with ONE_AT_A_TIME:
            reply = self._build().fit(ins)
        return self._on_fit(self._client, ins, reply) if self._on_fit else reply

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        with ONE_AT_A_TIME:
            return self._build().evaluate(ins)


def run_in_process(
    folder: Path, on_fit: ReplyHook | None = None, cid_of: Callable[[int], str] = str, **settings: Any
) -> tuple[SelectionStrategy, list[dict[str, Any]]]:
    """Run settings (underscores for dashes) to the end; the strategy and the rows of its rounds."""
    return run_config(
        folder, resolve({key.replace("_", "-"): value for key, value in settings.items()}), on_fit, cid_of
    )


def run_config(
    folder: Path,
    config: AppConfig,
    on_fit: ReplyHook | None = None,
    cid_of: Callable[[int], str] = str,
    on_round: Callable[[dict[str, Any]], None] | None = None,
    pool: int = 0,
) -> tuple[SelectionStrategy, list[dict[str, Any]]]:
    """Run `config` to the end (or resume it); the strategy and the rows of its rounds."""
    if not config.records.state_dir:
        config = replace(config, records=replace(config.records, state_dir=str(folder / "state")))
    recorder = RunFolder(folder, config.values(), resume=config.records.resume)
    recorder.listeners += [on_round] if on_round else []
    with closing(recorder):
        strategy = config.strategy(replace(make_run_context(config, recorder), pool=pool))
        if recorder.saved is not None:
            strategy.restore(recorder.saved)
        manager = SimpleClientManager()
        for client in range(config.run.clients):
            node = {"partition-id": client, "num-partitions": config.run.clients}
            context = Context(run_id=1, node_id=client, node_config=node, state=RecordDict(), run_config={})

            def build(context: Context = context) -> Client:
                return make_client(config, context, pooled=pool > 0)

            manager.register(InProcessProxy(cid_of(client), build, client, on_fit))
        Server(client_manager=manager, strategy=strategy).fit(
            strategy.round_count.most - strategy.completed, timeout=None
        )
    return strategy, recorder.rows
