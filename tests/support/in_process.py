"""Runs in this process with hooks, which change replies, choose node ids, and pool messages as for Ray."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsel_app.wiring.configuration import AppConfig, resolve
from fedsel_app.wiring.server import make_strategy, open_run_folder
from simulation.engines.inline_engine import Inline
from strategies.base import SelectionStrategy
from strategies.round.federation import ALL, Federation, Reply
from strategies.round.federation import Message as Asked
from strategies.round.flower_grid import FlowerGrid
from strategies.run_round import run_rounds
from tests.support.in_process_grid import grid_of

ReplyHook = Callable[[int, Asked, Reply], Reply]
"""Function of a client, a train message and the client's reply, that returns the reply to send."""


class Hooked(Inline):
    """Inline federation with other node ids and with a hook that gets every reply to a train message.

    With a hook, the clients send single updates, as deployed ones do.
    """

    def __init__(self, config: AppConfig, on_fit: ReplyHook | None = None, cid_of: Callable[[int], str] = str) -> None:
        super().__init__(config)
        self._on_fit, self.simulated = on_fit, on_fit is None
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
        return self._on_fit(client, message, answer)


def run_in_process(
    folder: Path, on_fit: ReplyHook | None = None, cid_of: Callable[[int], str] = str, **settings: Any
) -> tuple[SelectionStrategy, list[dict[str, Any]]]:
    """Run these settings (underscores for dashes) to the end. Returns the strategy and the rows of its rounds."""
    return run_config(
        folder, resolve({key.replace("_", "-"): value for key, value in settings.items()}), on_fit, cid_of
    )


class Killed(Exception):
    """The server's process ended here."""


def run_until(folder: Path, config: AppConfig, last: int) -> None:
    """Run `config`, and be killed in the moment that round `last` was written down."""

    def on_round(row: dict[str, Any]) -> None:
        if row["round"] == last:
            raise Killed

    with pytest.raises(Killed):
        run_config(folder, config, on_round=on_round)


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
