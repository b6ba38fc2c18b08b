"""Clients of a fake federation that answer the messages of a real round."""

from collections.abc import Iterable, Sequence, Set

import numpy as np
from flwr.common import ndarrays_to_parameters

from fedsel_app.messages.answers import EnrolAnswer, TrainAnswer
from fedsel_app.messages.instructions import Instruction, LocalTestInstruction, ProbeInstruction, TrainInstruction
from fedsel_app.messages.scalars import METRIC
from fedsel_app.wire.codec import encode
from strategies.round.federation import ALL, Answers, Message, Reply, Until
from strategies.testing.fakes import FakeFederation


class FakeClients:
    """Federation in which the clients of a `FakeFederation` answer the messages of a round.

    Parameters
    ----------
    order : the clients in the order of their answers; the place in it is Flower's id of a node, which has no meaning
    """

    simulated = False

    def __init__(self, federation: FakeFederation, order: Iterable[int]) -> None:
        self._federation = federation
        self._client_of = {f"node-{place}": client for place, client in enumerate(order)}

    def nodes(self) -> Set[str]:
        """Ids of all nodes."""
        return self._client_of.keys()

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Every client's answer to its message."""
        asked = {message.node: message.instruction for message in messages}
        return {node: self._reply(client, asked[node]) for node, client in self._client_of.items() if node in asked}

    def _reply(self, client: int, instruction: Instruction) -> Reply:
        federation = self._federation
        if isinstance(instruction, TrainInstruction):
            number = instruction.server_round
            loss = float(federation.losses(number)[client])
            payload = encode(federation.update(number, client), client=client, server_round=number)
            reports = dict.fromkeys(map(str, federation.needs.reports), loss)
            value = float(federation.metric(number)[client])
            reports |= {METRIC + name: value for name in federation.needs.fit_metrics}
            answer = TrainAnswer(loss, work_steps=loss, reports=reports)
            sent = ndarrays_to_parameters([np.frombuffer(payload, np.uint8)])
            return Reply(answer.to_config(), sent.tensors)
        if isinstance(instruction, ProbeInstruction | LocalTestInstruction):
            number = instruction.server_round
            metrics = dict.fromkeys(federation.needs.metrics, float(federation.metric(number)[client]))
            return Reply(metrics, examples=1, loss=float(federation.losses(number)[client]))
        counts = federation.label_counts[client]
        return Reply(EnrolAnswer(client, int(counts.sum()), counts.astype("<i8").tobytes()).to_config())
