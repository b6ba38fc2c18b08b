"""Pooled training: in a simulation a few messages instruct the whole cohort (see `clients.pooled`).

A message to each client costs Flower and Ray up to 25 ms of a core, and the model goes out with each.
"""

from collections.abc import Callable, Iterator

from flwr.common import FitIns, FitRes, Parameters
from flwr.server.client_proxy import ClientProxy

from fedsel_app.messages import PooledFits, PooledTraining

Instructions = list[tuple[ClientProxy, FitIns]]
Answers = list[tuple[ClientProxy, FitRes | Exception]]

MOST_BYTES = 1 << 26
"""Bytes of the models of all clients of one message, which are those of their updates where these are sent whole."""


class PooledTrainer:
    """Pooled trainer: sends a cohort's instructions in few messages, and separates their answers.

    The clients of a message that fails as a whole are asked again, each alone. One that fails once more, because it
    ends its worker or never answers, is alone from then on.

    Parameters
    ----------
    pool : each message has the `pool`-th part of the instructions that are left
    ask : sends instructions, each to its own proxy, at the same time, and returns the answers in their order
    """

    def __init__(self, pool: int, ask: Callable[[Instructions], Answers]) -> None:
        self._pool, self._ask = pool, ask
        self._alone: set[str] = set()

    def train(self, instructions: Instructions, client_of: Callable[[ClientProxy], int]) -> Answers:
        """Have each client train as its own instruction says; every client's answer, in any order."""
        together = [(proxy, ins) for proxy, ins in instructions if proxy.cid not in self._alone]
        parts = [
            *divided(together, self._pool),
            *([(proxy, ins)] for proxy, ins in instructions if proxy.cid in self._alone),
        ]
        answers: Answers = []
        again: Instructions = []
        replies = self._ask([(part[0][0], pooled(part, client_of)) for part in parts])
        for part, (proxy, reply) in zip(parts, replies, strict=True):
            if len(part) == 1:
                answers.append((proxy, reply))
            elif isinstance(reply, Exception):
                again += part
            else:
                answers += separated(reply, part)
        for proxy, reply in self._ask(again):
            if isinstance(reply, Exception):
                self._alone.add(proxy.cid)
            answers.append((proxy, reply))
        return answers


def divided(instructions: Instructions, pool: int) -> Iterator[Instructions]:
    """Divide instructions into messages: each has the `pool`-th part of what is left, `MOST_BYTES` at most.

    The small ones at the end let the workers end together, whatever the clients' local work.
    """
    while instructions:
        most = max(MOST_BYTES // sum(map(len, instructions[0][1].parameters.tensors)), 1)
        size = min(-(-len(instructions) // pool), most)
        yield instructions[:size]
        instructions = instructions[size:]


def pooled(part: Instructions, client_of: Callable[[ClientProxy], int]) -> FitIns:
    """One instruction for all clients of `part`, whose model is the same."""
    if len(part) == 1:
        return part[0][1]
    configs = {client_of(proxy): ins.config for proxy, ins in part}
    return FitIns(part[0][1].parameters, PooledTraining(configs).to_config())


def separated(reply: FitRes, part: Instructions) -> Iterator[tuple[ClientProxy, FitRes | Exception]]:
    """Each client's own answer in the reply to `pooled`; a RuntimeError in place of one that failed."""
    tensors = reply.parameters.tensors
    for (proxy, _), fit in zip(part, PooledFits.from_metrics(reply.metrics).fits, strict=True):
        if isinstance(fit, str):
            yield proxy, RuntimeError(fit)
            continue
        own, tensors = tensors[: fit.arrays], tensors[fit.arrays :]
        yield proxy, FitRes(reply.status, Parameters(own, reply.parameters.tensor_type), fit.examples, fit.metrics)
