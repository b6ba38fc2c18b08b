"""Runs in this process with hooks, which change replies, choose node ids, and pool messages as for Ray."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common import FitIns, FitRes, Parameters

from simulation.engines.inline_engine import Inline
from simulation.experiments.configuration import AppConfig, resolve
from simulation.wiring.client import make_client_app
from simulation.wiring.server import make_strategy, open_run_folder
from strategies.base import SelectionStrategy
from strategies.round.federation import ALL, Federation, Reply
from strategies.round.federation import Message as Asked
from strategies.round.flower_grid import FlowerGrid
from strategies.round.flower_manager import as_parameters, reply_of
from strategies.run_round import run_rounds
from tests.support.proxies import OK

ReplyHook = Callable[[int, FitIns, FitRes], FitRes]


class Hooked(Inline):
    """Inline federation with other node ids and with a hook that gets every reply to a train message."""

    def __init__(self, config: AppConfig, on_fit: ReplyHook | None = None, cid_of: Callable[[int], str] = str) -> None:
        super().__init__(config)
        self._on_fit = on_fit
        self._client_of = {cid_of(client): client for client in range(config.run.clients)}

    def nodes(self):
        return self._client_of.keys()

    def ask(self, messages, until=ALL):
        node_of = {str(self._client_of[message.node]): message.node for message in messages}
        inner = [replace(message, node=str(self._client_of[message.node])) for message in messages]
        answers = super().ask(inner, until)
        return {
            node_of[message.node]: self._hooked(int(message.node), message, answers[message.node]) for message in inner
        }

    def _hooked(self, client: int, message: Asked, answer):
        if self._on_fit is None or message.instruction.message_type != "train" or not isinstance(answer, Reply):
            return answer
        ins = FitIns(as_parameters(message.model), message.instruction.to_config())
        parameters = Parameters(list(answer.tensors), "numpy.ndarray")
        return reply_of(self._on_fit(client, ins, FitRes(OK, parameters, answer.examples, dict(answer.metrics))))


class InProcessGrid:
    """Flower's grid for a ClientApp in this process, which answers each message when it is pushed."""

    def __init__(self, app, contexts: dict[int, Context]) -> None:
        self._app, self._contexts = app, contexts
        self._replies: dict[str, Any] = {}
        self.pushed: list[Any] = []

    def get_node_ids(self):
        return list(self._contexts)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            number = str(len(self.pushed))
            message.metadata.__dict__["_message_id"] = number
            self.pushed.append(message)
            self._replies[number] = self._answer(message)
            ids.append(number)
        return ids

    def _answer(self, message):
        """The app's answer; its exception becomes an error, as in Flower's engines."""
        try:
            return self._app(message, self._contexts[message.metadata.dst_node_id])
        except Exception as error:  # noqa: BLE001 - it is the answer
            return Message(Error(code=2, reason=str(error)), reply_to=message)

    def pull_messages(self, message_ids):
        return [self._replies.pop(number) for number in message_ids if number in self._replies]


def grid_of(config: AppConfig) -> InProcessGrid:
    """A grid of a run's own clients."""
    contexts = {
        client + 1: Context(
            run_id=1,
            node_id=client + 1,
            node_config={"partition-id": client, "num-partitions": config.run.clients},
            state=RecordDict(),
            run_config={},
        )
        for client in range(config.run.clients)
    }
    return InProcessGrid(make_client_app(config, pooled=True), contexts)


def run_in_process(
    folder: Path, on_fit: ReplyHook | None = None, cid_of: Callable[[int], str] = str, **settings: Any
) -> tuple[SelectionStrategy, list[dict[str, Any]]]:
    """Run these settings (underscores for dashes) to the end. Returns the strategy and the rows of its rounds."""
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
    """Run `config` to the end (or resume it). Returns the strategy and the rows of its rounds.

    With `pool` the messages go through Flower's grid, as many at once as for this number of Ray workers.
    """
    state = config.records.state_dir or str(folder / "state")
    config = replace(config, records=replace(config.records, out=str(folder), state_dir=state))
    federation: Federation = FlowerGrid(grid_of(config), pool=pool) if pool else Hooked(config, on_fit, cid_of)
    with closing(open_run_folder(config, on_round)) as recorder:
        strategy = make_strategy(config, recorder)
        run_rounds(strategy, federation)
    return strategy, recorder.rows
