"""Values: checks the numbers and arrays that clients send, and bounds the numbers by the clients' median.

`fedsel_app.messages` has checked the type and the range of each number.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.messages.answers import LARGEST, MOST_EXAMPLES, EvaluateAnswer, sent_bounds
from fedsel_app.messages.reported_values import one_line, winsorised
from fedsel_app.records.schema import Failure
from fedsel_app.wire.codec import Update, WireError
from fedsel_app.wire.codec import decode as wire_decode
from fedsel_app.wire.entries import RoundEntries
from fedsel_app.wire.npy import read_array
from strategies.roster import Floats, Ints
from strategies.round.federation import Answer, Reply
from strategies.round.replies import replies_among
from strategies.round.replies.bounds import FAR, LEAST
from strategies.run_context import RunContext

LOGGER = logging.getLogger("fedsel")
LOSS, PROBE = "loss", "probe"
MOST_BYTES_A_PARAMETER = 8


class LastReported:
    """Last reported values of all clients, by kind. A multiple of their median bounds new values (`loss-clip`).

    Parameters
    ----------
    kinds : names of the reported values; others have no bound
    multiple : the bound, in multiples of the median; 0: no bound, and no values are kept
    """

    def __init__(self, clients: int, kinds: Iterable[str], multiple: float) -> None:
        self._last = {str(kind): np.full(clients, np.nan) for kind in kinds if multiple}
        self._multiple = multiple

    def bounded(self, kind: str, clients: Ints, values: Floats) -> Floats:
        """The values that the `clients` report now, float64 (n,), clipped to the bound; NaN is unknown."""
        if kind not in self._last:
            return values
        reported = ~np.isnan(values)
        self._last[kind][clients[reported]] = values[reported]
        return winsorised(values, self._multiple, self._last[kind])

    def state(self) -> dict[str, NDArray[Any]]:
        """The last values, float64 (K,) of each kind."""
        return {kind: last.copy() for kind, last in self._last.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load a state that `state` returned. Raises ValueError for other clients, KeyError for other kinds."""
        for kind, last in self._last.items():
            if state[kind].shape != last.shape:
                raise ValueError(f"values of {state[kind].shape} clients")
            self._last[kind] = state[kind].astype(np.float64)


def read_probes(
    answers: Mapping[int, Answer], server_round: int, metrics: Sequence[str] = ()
) -> tuple[dict[int, EvaluateAnswer], list[Failure]]:
    """The answers to a loss probe with these `metrics`, by client, and the clients that failed it.

    A metric that is missing or impossible is left out; the impossible are logged.
    """
    sound, failures = dict[int, EvaluateAnswer](), list[Failure]()
    for client, answer in answers.items():
        try:
            sound[client] = probed(answer, metrics)
        except WireError as error:
            reason = one_line(error)
            LOGGER.warning("Round %d: client %d failed its loss probe: %s", server_round, client, reason)
            failures.append({"client": client, "reason": f"loss probe: {reason}"})
    log_impossible(answers, {client: answer.scores for client, answer in sound.items()}, metrics, server_round)
    return sound, failures


def probed(reply: Answer, metrics: Sequence[str] = ()) -> EvaluateAnswer:
    """The answer in the reply to a loss probe. Raises WireError if its loss is out of range."""
    if not isinstance(reply, Reply):
        raise WireError(str(reply))
    answer = EvaluateAnswer.from_evaluation(reply.loss, reply.examples, reply.metrics, metrics)
    if math.isnan(answer.loss) or not answer.examples:
        raise WireError(
            f"it reports a loss of {one_line(reply.loss)} over {one_line(reply.examples)} examples; "
            f"the loss must be -{LARGEST:.3g} to {LARGEST:.3g}, over 1 to {MOST_EXAMPLES} examples"
        )
    return answer


def log_impossible(
    answers: Mapping[int, Answer], known: Mapping[int, Mapping[str, float]], names: Sequence[str], server_round: int
) -> None:
    """Log the clients that sent a score of one of these `names`, but not as a number within its bounds.

    `known` are the scores that were read, by client; NaN is none.
    """
    for name in names:
        left_out = [
            f"client {client} says {one_line(answer.metrics[name])}"
            for client, answer in answers.items()
            if isinstance(answer, Reply) and name in answer.metrics
            if client in known and math.isnan(known[client].get(name, math.nan))
        ]
        if left_out:
            low, high = sent_bounds(name)
            LOGGER.warning(
                "Round %d: the %s of clients (%d) is left out, because it is not a number from %.3g to %.3g: %s",
                *(server_round, name, len(left_out), low, high, one_line("; ".join(left_out))),
            )


def read_tests(
    answers: Mapping[int, Answer], server_round: int, context: RunContext, scores: Sequence[str] = ()
) -> dict[int, EvaluateAnswer]:
    """Read and bound the answers of clients that tested a model, with these `scores`, by ascending id. Failures and
    impossible scores are logged.

    `example-clip` times the median bounds the examples, and `loss-clip` times the median bounds the losses. With
    `loss-clip` an unknown loss counts as this bound. Of three clients or more, no loss counts as more than `FAR` times
    the median, unless `max-update-norm` is 0; nor does a score without bounds, or `FAR` where 1 is its best value.
    """
    replies = replies_among(answers, server_round, "failed to test")
    clients = sorted(replies)
    ordered = [replies[client] for client in clients]
    answered = [EvaluateAnswer.from_evaluation(reply.loss, reply.examples, reply.metrics, scores) for reply in ordered]
    log_impossible(replies, dict(zip(clients, (each.scores for each in answered), strict=True)), scores, server_round)
    told = zip(clients, answered, strict=True)
    if unknown := [client for client, answer in told if not answer.examples or math.isnan(answer.loss)]:
        LOGGER.warning(
            "Round %d: the tests of clients %s have no possible loss or number of examples, and do not count in means.",
            *(server_round, one_line(unknown)),
        )
    reported = np.array([answer.examples for answer in answered], np.float64)
    examples = winsorised(reported, context.reported_values.example_clip, reported[reported > 0.0])
    losses = np.array([answer.loss for answer in answered], np.float64)
    if context.aggregation.max_update_norm and len(answered) >= LEAST:
        losses = winsorised(losses, FAR)
        for name, (low, high) in zip(scores, map(sent_bounds, scores), strict=True):
            if high - low > 2.0:
                values = np.array([answer.scores.get(name, math.nan) for answer in answered], np.float64)
                values = winsorised(values, FAR, np.maximum(np.abs(values), high <= 1.0))
                for at in np.flatnonzero(np.isfinite(values)):
                    answered[at] = replace(answered[at], scores={**answered[at].scores, name: float(values[at])})
    if context.reported_values.loss_clip:
        losses = winsorised(np.where(np.isnan(losses), np.inf, losses), context.reported_values.loss_clip, losses)
    bounded = zip(clients, answered, examples.tolist(), losses.tolist(), strict=True)
    return {client: EvaluateAnswer(loss, int(count), answer.scores) for client, answer, count, loss in bounded}


def tested_loss(answers: Mapping[int, EvaluateAnswer]) -> tuple[float, Ints]:
    """Mean loss over all tested examples, and the clients that tested, ascending ids.

    The loss is inf if one is unknown or no client tested. A client that reports 0 examples, or more than allowed, is
    left out.
    """
    tested = {client: answer for client, answer in answers.items() if answer.examples}
    examples = sum(answer.examples for answer in tested.values())
    loss = sum(answer.examples * answer.loss for answer in tested.values()) / examples if examples else math.inf
    return loss if math.isfinite(loss) else math.inf, np.array(list(tested), np.int64)


def unpack_array(tensor: bytes, dtype: type[np.generic], most: int) -> NDArray[np.generic]:
    """Decode an array (n,) of `dtype` with at most `most` entries, as a view. Raises WireError for any other."""
    array: NDArray[np.generic] = read_array(tensor)
    if array.dtype != dtype or array.ndim != 1 or array.size > most:
        wanted = f"at most {most} {np.dtype(dtype)} in NumPy's format"
        raise WireError(f"its array must be {wanted}, and it sent {array.dtype} {array.shape}")
    return array


def unpack_buffers(
    tensors: Sequence[bytes], size: int, variances: NDArray[np.bool_], dtype: type[np.floating] = np.float32
) -> Floats:
    """Decode the buffers of a reply, sent as `dtype`: float64 (`size`,).

    Among the first, those in `variances` cannot be negative.

    Raises WireError if they are not `size` finite numbers, or a variance is negative.
    """
    if len(tensors) != 1:
        raise WireError(f"it sent {len(tensors)} arrays instead of one: server and client must run the same app")
    values = unpack_array(tensors[0], dtype, size).astype(np.float64)
    if values.size != size or not (np.abs(values) <= LARGEST).all():
        raise WireError(f"it did not send {size} finite BatchNorm statistics")
    if (values[: variances.size][variances] < 0).any():
        raise WireError("it sent a negative variance of BatchNorm")
    return values


def read_statistics(
    answers: Mapping[int, Answer], variances: NDArray[np.bool_], server_round: int
) -> tuple[dict[int, Floats], list[Failure]]:
    """The BatchNorm statistics of each client that calibrated, as `unpack_buffers` returns them, and the others."""
    statistics, failures = dict[int, Floats](), list[Failure]()
    for client, reply in answers.items():
        try:
            if not isinstance(reply, Reply):
                raise WireError(str(reply))
            statistics[client] = unpack_buffers(reply.tensors, variances.size, variances)
        except WireError as error:
            LOGGER.warning("Round %d: client %d did not calibrate: %s", server_round, client, one_line(error))
            failures.append({"client": client, "reason": f"calibration: {one_line(error)}"})
    return statistics, failures


def decode_payload(
    tensor: bytes,
    client: int,
    server_round: int,
    size: int,
    seed: int | None = None,
    entries: RoundEntries | None = None,
    value_bytes: int = 4,
) -> tuple[Update, int]:
    """Decode one payload of a reply; return its update and its number of bytes.

    `seed` is the run's seed, for indices that are drawn from it, and `entries` those that the server has stated for the
    round, if any. `value_bytes` are those of the model's entries.

    Raises WireError if it is not a valid update of `size` parameters from this client for this round.
    """
    payload = unpack_array(tensor, np.uint8, MOST_BYTES_A_PARAMETER * size + 4096).data
    packet = wire_decode(payload, size=size if entries is None else entries.count(size), seed=seed)
    if (packet.client, packet.server_round) != (client, server_round):
        raise WireError(
            f"it sent an update of client {packet.client} for round {packet.server_round}, "
            f"and client {client} was asked for round {server_round}"
        )
    update = packet.update
    if entries is not None:
        return entries.placed(update, size), len(payload)
    if update.values.itemsize > value_bytes:
        raise WireError(f"its update has entries of {update.values.itemsize} bytes, and the model's have {value_bytes}")
    return update, len(payload)


def refuse_large(norm: float) -> None:
    """Raise WireError for the norm of an update that is too large to be squared."""
    if norm > LARGEST:
        raise WireError(
            f"its update has norm {norm:.3g}, and the largest valid norm is {LARGEST:.3g}: "
            "lower 'lr' if training diverges"
        )
