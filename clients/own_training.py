"""Training by a user's own client: its result becomes a compressed update, reports and a state to keep.

The user's functions give what nobody else can work out. Without `losses` the client's `evaluate` is its loss, and the
mean loss stands in for the root of the mean squared one (Oort's utility), which is never smaller. With
`control_variates` the solver is SCAFFOLD (see `clients.training.solvers`): the function takes the term to add to each
gradient, and `fit` returns the metrics `steps` and `lr`.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import Code, NDArrays, Parameters, ndarrays_to_parameters, parameters_to_ndarrays
from numpy.typing import NDArray

from clients import flower_messages as flower
from clients.compression.compressors import draw_layers
from clients.compression.error_feedback import UploadSpec, as_sent, restore_untaken, upload
from clients.state import STATE_FOLDER, Arrays, ClientHistory, StateStore, user_state_folder
from clients.training import solvers
from clients.upload_time import last_upload
from fedsel_app.config import CompressionConfig, TrainingConfig
from fedsel_app.messages import (
    PARTITION_ID,
    Ability,
    AppTrainInstruction,
    Report,
    Scalar,
    TrainAnswer,
    embed,
    reported_loss,
    reported_steps,
)
from fedsel_app.models.array_layout import ArrayLayout
from fedsel_app.seeds import Purpose
from fedsel_app.wire.codec import Update, encode

Vector = NDArray[np.float32]
Losses = Callable[[Context, NDArrays], NDArray[Any]]
Diagonal = Callable[[Context, NDArrays], NDArrays]


@dataclass(frozen=True, kw_only=True)
class UsersFunctions:
    """Functions of a user's, see `clients.selecting.selecting`."""

    examples: Callable[[Context], int] | None = None
    losses: Losses | None = None
    label_counts: Callable[[Context], Sequence[int]] | None = None
    gradient_deviation: Callable[[Context, NDArrays], float] | None = None
    curvature: Diagonal | None = None
    control_variates: Callable[[Context, NDArrays], None] | None = None

    @property
    def abilities(self) -> frozenset[Ability]:
        """The functions that there are."""
        return frozenset(ability for ability in Ability if getattr(self, ability) is not None)


def train(
    functions: UsersFunctions,
    instruction: AppTrainInstruction,
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
) -> Message:
    """Answer a message to train, whose model ends with the server's control variate, float32 (N,), under SCAFFOLD.

    The reply has what that of fedsel's own client has: see `clients.client.SelectionClient.fit`.
    """
    received = parameters_to_ndarrays(flower.read_model(message))
    control = received.pop() if instruction.with_control else None
    model = ndarrays_to_parameters(received)
    flower.set_model(message, model)
    layout = ArrayLayout(received, [int(place) for place in instruction.statistics_positions.split(",") if place])
    compression = CompressionConfig.from_values(json.loads(instruction.compression))
    remembers = not compression.lossless or control is not None
    client = int(context.node_config[PARTITION_ID])
    store = _store(context).of_run(instruction.run_key)
    history = ClientHistory(instruction.last_instructed, instruction.last_aggregated, instruction.last_checkpoint)
    state: Arrays = {}
    if remembers:
        state = restore_untaken(*store.recall(client, history), instruction.taken, instruction.seed)
    measured = _reports_before(functions, instruction, model, message, context, call_next)
    term = solvers.correction(state, control)
    if term is not None and functions.control_variates is not None:
        before, statistics = layout.flatten(received)
        functions.control_variates(context, layout.restore(term, np.zeros_like(statistics)))
    started_s = time.perf_counter()
    reply = call_next(message, context)
    compute_s = time.perf_counter() - started_s
    result = flower.read_fit(reply)
    if result.status.code != Code.OK:
        return reply
    trained = parameters_to_ndarrays(result.parameters)
    if Report.GRADIENT_DEVIATION in instruction.reports and functions.gradient_deviation is not None:
        measured[Report.GRADIENT_DEVIATION] = float(functions.gradient_deviation(context, trained))
    (before, _), (after, statistics) = layout.flatten(received), layout.flatten(trained)
    finished = _finish(state, control, after - before, result.metrics)
    spec = UploadSpec(
        kept_fraction=instruction.kept_fraction,
        residual_decay=instruction.residual_decay,
        estimated=instruction.estimated,
        seed=instruction.seed,
        server_round=instruction.server_round,
        client=client,
    )
    scores = None
    if functions.curvature is not None and instruction.curvature and compression.curvature_layers:
        scores = partial(_curvature, functions.curvature, context, trained, layout, compression, spec)
    update, kept = upload(after - before, state, layout.layers, compression, spec, scores)
    seeded = compression.compressor == "rand-k"
    payloads = [encode(update, client=client, server_round=instruction.server_round, seeded=seeded)]
    if remembers and instruction.keep_state:
        if compression.remembers_unsent:
            kept |= as_sent(payloads[0], layout.size, instruction.residual_decay)
        store.save(client, instruction.server_round, finished.state | kept, history)
    if finished.sent is not None:
        change = Update(layout.size, None, finished.sent)
        payloads.append(encode(change, client=client, server_round=instruction.server_round))
    answer = TrainAnswer(reported_loss(result.metrics), 0.0, compute_s, *last_upload(), reports=measured)
    sent: NDArrays = [np.frombuffer(payload, np.uint8) for payload in payloads]
    sent += [statistics] if instruction.statistics else []
    return flower.answer_fit(reply, result, ndarrays_to_parameters(sent), embed(answer.to_metrics(), result.metrics))


def _finish(
    state: Mapping[str, NDArray[Any]], control: Vector | None, delta: Vector, metrics: Mapping[str, Scalar]
) -> solvers.Finished:
    """Result of the solver after a training that moved the weights by `delta`."""
    if control is None:
        return solvers.Finished({})
    steps, lr = reported_steps(metrics)
    return solvers.finish(TrainingConfig(solver="scaffold", momentum=0.0), state, control, delta, steps, lr)


def _reports_before(
    functions: UsersFunctions,
    instruction: AppTrainInstruction,
    model: Parameters,
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
) -> dict[Report, float]:
    """Reports on the received model that the instruction asks for."""
    wanted = {Report.INITIAL_LOSS, Report.RMS_LOSS} & set(instruction.reports)
    if not wanted:
        return {}
    if functions.losses is not None:
        losses = losses_of(functions.losses, context, model)
        mean, rms = float(losses.mean()), math.sqrt(float(np.square(losses).mean()))
    else:
        asked = flower.evaluation_of(model, flower.read_config(message), message)
        evaluated = flower.read_evaluation(call_next(asked, context))
        if evaluated.status.code != Code.OK:
            raise ValueError(f"The client's evaluate does not tell its loss: {evaluated.status.message}")
        mean = rms = float(evaluated.loss)
    known = {Report.INITIAL_LOSS: mean, Report.RMS_LOSS: rms}
    return {report: known[report] for report in wanted}


def losses_of(function: Losses, context: Context, model: Parameters) -> NDArray[np.float64]:
    """The user's losses of the model, float64 (n,). Raises ValueError if there is none."""
    losses = np.asarray(function(context, parameters_to_ndarrays(model)), np.float64).ravel()
    if not losses.size:
        raise ValueError("The function 'losses' returned none: it gives one loss a training example.")
    return losses


def _curvature(
    function: Diagonal,
    context: Context,
    trained: NDArrays,
    layout: ArrayLayout,
    compression: CompressionConfig,
    spec: UploadSpec,
    shares: NDArray[np.float64],
) -> dict[int, Vector]:
    """The user's diagonal curvature of the layers that the Markov rule draws by their `shares`."""
    rng = spec.stream(Purpose.COMPRESS)
    drawn = draw_layers(shares, compression.curvature_layers, compression.curvature_explore, rng)
    diagonal, _ = layout.flatten(function(context, trained))
    spans = {layer: layout.layers[layer] for layer in drawn.tolist()}
    return {layer: diagonal[span.start : span.stop] for layer, span in spans.items()}


def _store(context: Context) -> StateStore:
    """The client's states, in the node configuration's `state-dir` or in the user's own folder."""
    folder = str(context.node_config.get("state-dir", "")) or user_state_folder()
    return StateStore(Path(folder) / STATE_FOLDER, begins_anew=True)
