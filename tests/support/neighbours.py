"""Pairs of private runs with the same released models: in the second, one client sends and reports something else."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.common import ndarrays_to_parameters

from fedsel_app.config import PrivacyConfig
from fedsel_app.records.run_folder import Releases
from fedsel_app.wire.codec import Update, decode, encode
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.server import make_strategy, open_run_folder
from simulation.engines.inline_engine import Inline
from strategies.aggregation.privacy import Privacy
from strategies.roster import Floats
from strategies.round.federation import ALL
from strategies.run_round import run_rounds


class Lie(NamedTuple):
    """What a client sends instead: its update, float32 (N,), and its numbers."""

    update: Callable[[Floats], Update]
    loss: float
    steps: float
    examples: int


def _dense(values: Floats) -> Update:
    return Update(values.size, None, values.astype(np.float32))


LIES = (
    Lie(lambda values: Update(values.size, np.zeros(1, np.uint32), np.zeros(1, np.float32)), 0.0, 0.0, 1),
    Lie(lambda values: _dense(1e6 * (values[::-1] + 1.0)), 1e9, 1e9, 10**6),
    Lie(_dense, -1e30, 1.0, 3),
)
"""The smallest and fastest reply, the largest and slowest, and one that the server must refuse for its loss."""


class Neighbour(Inline):
    """Federation in which one client lies in every answer."""

    def __init__(self, config: AppConfig, client: int, lie: Lie) -> None:
        super().__init__(config)
        self._node, self._lie, self._seed = str(client), lie, config.run.seed

    def ask(self, messages, until=ALL):
        answers = super().ask(messages, until)
        for message in messages:
            if message.node == self._node:
                answers[message.node] = self._lied(answers[message.node], message)
        return answers

    def _lied(self, answer, message):
        lie = self._lie
        if answer.enrolment is not None:
            return replace(answer, enrolment=replace(answer.enrolment, examples=lie.examples))
        metrics = answer.metrics | {"examples": lie.examples, "loss": lie.loss, "work_steps": lie.steps}
        metrics |= {"compute_s": 0.1 * lie.steps, "upload_bytes": 10**6, "upload_s": 1e-3 * (1.0 + lie.steps)}
        answer = replace(answer, metrics=metrics, loss=lie.loss, examples=lie.examples)
        if message.instruction.message_type != "train":
            return answer
        array = np.load(BytesIO(answer.tensors[0]))
        packet = decode(array.tobytes(), size=message.model.arrays[0].size, seed=self._seed)
        update = lie.update(packet.update.dense().astype(np.float64))
        payload = encode(update, client=packet.client, server_round=packet.server_round)
        return replace(answer, tensors=ndarrays_to_parameters([np.frombuffer(payload, np.uint8)]).tensors)


@dataclass
class Past:
    """Releases of a run, by round: each client's part of the sum before the noise, float64 (N,), and the aggregate."""

    parts: dict[int, dict[int, Floats]]
    released: dict[int, Floats]


class Watched(Privacy):
    """Gaussian mechanism that keeps the parts of its sums, and releases what was released in the `past`."""

    def __init__(self, config: PrivacyConfig, past: Past | None, round_of: Callable[[], int]) -> None:
        super().__init__(config, Releases(), np.random.default_rng(1).standard_normal)
        self._past, self._round_of = past, round_of
        self.parts: dict[int, list[Floats]] = {}
        self.released: dict[int, Floats] = {}

    def protect(self, updates):
        aggregate, weights = super().protect(updates)
        number = self._round_of()
        scales = len(updates) * weights
        self.parts[number] = [scale * update.dense() for scale, update in zip(scales, updates, strict=True)]
        if self._past is not None:
            aggregate = self._past.released.get(number, aggregate)
        self.released[number] = aggregate
        return aggregate, weights


def play(config: AppConfig, folder: Path, federation: Inline | None = None, past: Past | None = None) -> Past:
    """Run `config` to its end, with the models of the `past` if there is one."""
    config = replace(config, records=replace(config.records, out=str(folder), state_dir=str(folder / "state")))
    with closing(open_run_folder(config)) as recorder:
        strategy = make_strategy(config, recorder)
        watched = Watched(config.privacy, past, lambda: strategy.run.record.round)
        strategy.run.server.privacy = watched
        run_rounds(strategy, federation or Inline(config))
    of_round = {row["round"]: row["aggregated"] for row in recorder.rows}
    parts = {number: dict(zip(of_round[number], found, strict=True)) for number, found in watched.parts.items()}
    return Past(parts, watched.released)


def largest_move(config: AppConfig, folder: Path) -> float:
    """The largest move of a round's sum before the noise, in clip norms, by any of `LIES` of one client.

    The client is one of the first release. Its own part counts with its norm, because it may have any direction, and
    the others' with the norm of their change. From the first round that only one run releases, the models differ, so
    no later one counts.
    """
    whole = play(config, folder / "whole")
    client = next((min(parts) for parts in whole.parts.values()), 0)
    lied = (play(config, folder / str(place), Neighbour(config, client, lie), whole) for place, lie in enumerate(LIES))
    found = (move for other in lied for move in _moves(whole, other, client))
    return max(found, default=0.0) / config.privacy.dp_clip_norm


def _moves(whole: Past, other: Past, client: int) -> Iterator[float]:
    for number in sorted(whole.parts | other.parts):
        one, two = whole.parts.get(number, {}), other.parts.get(number, {})
        own = max(float(np.linalg.norm(parts.get(client, 0.0))) for parts in (one, two))
        rest = [sum(part for each, part in parts.items() if each != client) for parts in (one, two)]
        yield own + float(np.linalg.norm(np.atleast_1d(rest[0] - rest[1])))
        if not one or not two:
            return
