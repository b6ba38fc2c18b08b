"""Buffers of an aggregated model: clients recompute the BatchNorm statistics, or those of local training are averaged.

Calibration is from HeteRo-Select (Alg. 1, line 13). The average by examples equals plain averaging of whole models;
ISP's candidates always use it. Buffers that are no statistics but change in training are always averaged.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedsel_app.messages.instructions import CalibrateInstruction
from fedsel_app.records.schema import Failure
from fedsel_app.seeds import Purpose, stream
from strategies.checkpoint import Composed, Stateful
from strategies.roster import Floats, Ints
from strategies.round.clients import ConnectedClients
from strategies.round.federation import sent_model
from strategies.round.replies.bounds import FAR, BoundedMean
from strategies.round.replies.training import Replies
from strategies.round.replies.values import LOGGER, read_statistics
from strategies.run_context import Model, RunContext

SEQUENTIAL = 3
"""Clients that calibrate one after another (HeteRo-Select's code)."""


class BufferAverages(Composed):
    """Buffers of the global model, and the state of their bounds: see `strategies.round.replies.bounds`.

    Calibrated statistics are always bounded. Those of local training are averaged as they are, as when whole models are
    averaged, unless a client is far off.
    """

    def __init__(self, context: RunContext) -> None:
        self._context, self._count = context, context.variances.size
        trained = context.variances[: self._count if context.calibration.of_training else 0]
        sent = context.buffers.size - self._count + trained.size
        bounded = partial(BoundedMean, clients=context.run.clients, config=context.aggregation)
        self._sent = bounded(sent, variances=trained, always=False)
        self._calibrated = bounded(self._count, variances=context.variances, always=True)

    def take(
        self, clients: ConnectedClients, replies: Replies, model: Model, server_round: int, examples: Ints
    ) -> tuple[NDArray[np.float32], int, list[Failure]]:
        """The buffers of the new `model`, float32 (B,), the bytes that they took, in both directions, and the clients
        whose statistics do not count, or only in part. So far the model has the old buffers. `examples` are those of
        all clients, (K,).

        The statistics are the first S of them. By `calibration-form`, either those of the `replies` are averaged, or
        their clients run mini-batches in train mode. Usually each runs `calibration-batches`, and the statistics are
        averaged (`BoundedMean`). With `calibration-form` = sequential, one client after the other continues the same
        statistics, `SEQUENTIAL` of them, drawn at random: each runs all mini-batches of its examples, until there are
        `calibration-batches` in total. The other buffers are averages of those in the `replies`. The bytes
        include all buffers in the `replies`. Masked buffers come with the updates.

        A client that fails is left out. If all fail, the statistics do not change. A model without buffers costs
        nothing.
        """
        config, (parameters, buffers), count = self._context.calibration, model, self._count
        if self._context.privacy.masked:
            mean = buffers if replies.buffers is None else replies.buffers.astype(buffers.dtype)
            return mean, 0, []
        sent_bytes, failures = buffers.nbytes * len(replies.statistics), list[Failure]()
        kept = 0 if config.of_training else count
        if replies.statistics and buffers.size > kept:
            vectors = [values[kept:] for values in replies.statistics]
            average, far = self._sent.take(replies.clients, vectors, examples)
            failures += _far(far, server_round)
            if average is not None:
                buffers = np.concatenate([buffers[:kept], average.astype(buffers.dtype)])
        if not count or config.of_training:
            return buffers, sent_bytes, failures
        ask = partial(self._ask, clients, parameters, server_round, failures)
        client_bytes = parameters.nbytes + buffers.nbytes + buffers[:count].nbytes
        chosen = self._chosen(replies.clients, server_round)
        if config.calibration_form == "sequential":
            done = contributed = 0
            for client in chosen.tolist():
                passes = self._context.training.passes(examples[client].item(), self._context.admission.least_examples)
                if batches := min(config.calibration_batches - done, passes):
                    sent_bytes += client_bytes
                    for values in ask(buffers, [client], batches, contributed).values():
                        buffers = np.concatenate([values.astype(np.float32), buffers[count:]])
                        contributed += batches
                    done += batches
            return buffers, sent_bytes, failures
        statistics = ask(buffers, chosen.tolist(), config.calibration_batches)
        sent_bytes += chosen.size * client_bytes
        if statistics:
            vectors = list(statistics.values())
            average, far = self._calibrated.take(np.array(list(statistics), np.int64), vectors, examples)
            failures += _far(far, server_round)
            if average is not None:
                buffers = np.concatenate([average.astype(buffers.dtype), buffers[count:]])
        return buffers, sent_bytes, failures

    def _chosen(self, clients: Ints, server_round: int) -> Ints:
        """The clients that calibrate, drawn from `clients`, ascending."""
        if self._context.calibration.calibration_form != "sequential" or clients.size <= SEQUENTIAL:
            return clients
        rng = stream(self._context.run.seed, Purpose.CALIBRATORS, server_round)
        return np.sort(rng.choice(clients, SEQUENTIAL, replace=False))

    def _ask(
        self,
        clients: ConnectedClients,
        parameters: NDArray[np.float32],
        server_round: int,
        failures: list[Failure],
        buffers: NDArray[np.float32],
        chosen: list[int],
        batches: int,
        earlier_batches: int = 0,
    ) -> dict[int, Floats]:
        """Statistics of each `chosen` client, float64 (S,), after its `batches`. The others are added to `failures`."""
        instruction = dict.fromkeys(chosen, CalibrateInstruction(server_round, batches, earlier_batches))
        answers = clients.ask(instruction, sent_model(parameters, buffers))
        statistics, failed = read_statistics(answers, self._context.variances, server_round)
        failures += failed
        return statistics

    def parts(self) -> Mapping[str, Stateful]:
        """The bounds, which keep the last vectors of clients."""
        return {"sent": self._sent, "calibrated": self._calibrated}


def _far(clients: Ints, server_round: int) -> list[Failure]:
    """Log the clients whose buffers are far from those of the others. Returns them with the reason."""
    reason = (
        f"calibration: its BatchNorm statistics, or other buffers, are more than {FAR:g} times as far from the median "
        "of the clients as a typical client's, and count at that one's distance: see 'max-update-norm'"
    )
    for client in clients.tolist():
        LOGGER.warning("Round %d: client %d: %s.", server_round, client, reason)
    return [{"client": client, "reason": reason} for client in clients.tolist()]
