"""Flower mod `selecting`: a user's own ClientApp enrols, answers loss probes, compresses its updates and reports.

`ClientApp(client_fn, mods=[selecting])` is all that a client app needs. The user's `fit` and `evaluate` get their own
arrays and their own config; what fedsel's server sends beside these is read here. What nobody but the user can work
out comes from functions: `mods=[selecting(label_counts=my_counts)]`. Without fedsel's server the mod does nothing.

Deviations: without the function `losses` a loss probe is the client's `evaluate`, on whatever data that evaluates, and
the mean loss stands in for the root of the mean squared one (Oort's utility), which is never smaller.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common import (
    Code,
    EvaluateRes,
    NDArrays,
    Parameters,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from numpy.typing import NDArray

from clients import flower_messages as flower
from clients.compression.compressors import draw_layers
from clients.compression.error_feedback import UploadSpec, as_sent, restore_untaken, upload
from clients.state import STATE_FOLDER, Arrays, ClientHistory, StateStore, user_state_folder
from clients.upload_time import last_upload
from fedsel_app.config import CompressionConfig
from fedsel_app.messages import (
    PARTITION_ID,
    Ability,
    AppEnrolment,
    AppTrainInstruction,
    Config,
    EnrolInstruction,
    ProbeInstruction,
    Report,
    TrainAnswer,
    embed,
    embedded,
    read_evaluate_instruction,
    told_loss,
    users_part,
)
from fedsel_app.models.array_layout import ArrayLayout
from fedsel_app.seeds import Purpose
from fedsel_app.wire.codec import encode

Vector = NDArray[np.float32]
OK = Status(Code.OK, "")


@overload
def selecting(message: Message, context: Context, call_next: ClientAppCallable, /) -> Message: ...


@overload
def selecting(
    *,
    examples: Callable[[Context], int] | None = None,
    losses: Callable[[Context, NDArrays], NDArray[Any]] | None = None,
    label_counts: Callable[[Context], Sequence[int]] | None = None,
    gradient_deviation: Callable[[Context, NDArrays], float] | None = None,
    curvature: Callable[[Context, NDArrays], NDArrays] | None = None,
) -> Mod: ...


def selecting(
    message: Message | None = None,
    context: Context | None = None,
    call_next: ClientAppCallable | None = None,
    /,
    **functions: Any,
) -> Message | Mod:
    """Mod of a Flower ClientApp: `mods=[selecting]`, or `mods=[selecting(...)]` with functions of the user's.

    Parameters
    ----------
    examples : context -> int
        Training examples of this client; without it the server learns them from the first `fit`.
    losses : (context, arrays) -> float ndarray (n,)
        Loss of the model `arrays` on each of the client's training examples.
    label_counts : context -> sequence of int
        Training examples of each class; their sum is the number of examples.
    gradient_deviation : (context, arrays) -> float
        Root of the mean squared distance of the mini-batch gradients from their mean, at the trained model.
    curvature : (context, arrays) -> list of ndarray
        Diagonal of the loss's Hessian at the trained model, in the shapes of its arrays.
    """
    if message is None or context is None or call_next is None:
        return SelectingMod(**functions)
    return SelectingMod()(message, context, call_next)


@dataclass(frozen=True, kw_only=True)
class SelectingMod:
    """The mod with the user's functions, see `selecting`."""

    examples: Callable[[Context], int] | None = None
    losses: Callable[[Context, NDArrays], NDArray[Any]] | None = None
    label_counts: Callable[[Context], Sequence[int]] | None = None
    gradient_deviation: Callable[[Context, NDArrays], float] | None = None
    curvature: Callable[[Context, NDArrays], NDArrays] | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message of fedsel's server through the user's client; pass on any other."""
        kind = message.metadata.message_type
        if kind not in (flower.GET_PROPERTIES, flower.FIT, flower.EVALUATE):
            return call_next(message, context)
        config = flower.read_config(message)
        own = embedded(config)
        if not own:
            return call_next(message, context)
        flower.set_config(message, users_part(config))
        if kind == flower.GET_PROPERTIES:
            return self._enrol(EnrolInstruction.from_config(own), message, context, call_next)
        if kind == flower.FIT:
            return self._train(AppTrainInstruction.from_config(own), message, context, call_next)
        if isinstance(read_evaluate_instruction(own), ProbeInstruction) and self.losses is not None:
            losses = _losses(self.losses, context, flower.read_model(message))
            return flower.answer_evaluation(message, EvaluateRes(OK, float(losses.mean()), losses.size, {}))
        return call_next(message, context)

    @property
    def abilities(self) -> frozenset[Ability]:
        """The functions that there are."""
        return frozenset(ability for ability in Ability if getattr(self, ability) is not None)

    def _enrol(
        self, instruction: EnrolInstruction, message: Message, context: Context, call_next: ClientAppCallable
    ) -> Message:
        """Identity by the node configuration, and numbers of examples where a function tells them."""
        counts = b""
        examples = 0
        if self.label_counts is not None:
            by_class = np.asarray(self.label_counts(context), "<i8")
            examples = int(by_class.sum())
            counts = by_class.tobytes() if instruction.label_counts else b""
        if self.examples is not None:
            examples = int(self.examples(context))
        client = context.node_config.get(PARTITION_ID)
        enrolment = AppEnrolment(client if isinstance(client, int) else None, examples, counts, self.abilities)
        reply = call_next(message, context)
        answered = flower.read_properties(reply)
        users = answered.properties if answered.status.code == Code.OK else {}
        answered.status, answered.properties = OK, enrolment.to_properties(users)
        return flower.answer_properties(reply, answered)

    def _train(
        self, instruction: AppTrainInstruction, message: Message, context: Context, call_next: ClientAppCallable
    ) -> Message:
        """The user's training, and of its result the compressed update, the reports and the state to keep."""
        model = flower.read_model(message)
        received = parameters_to_ndarrays(model)
        layout = ArrayLayout(received, _positions(instruction.statistics_positions))
        compression = CompressionConfig.from_values(json.loads(instruction.compression))
        client = int(context.node_config[PARTITION_ID])
        store = _store(context).of_run(instruction.run_key)
        history = ClientHistory(instruction.last_instructed, instruction.last_aggregated, instruction.last_checkpoint)
        state: Arrays = {}
        if not compression.lossless:
            state = restore_untaken(*store.recall(client, history), instruction.taken, instruction.seed)
        measured = self._reports_before(instruction, model, message, context, call_next)
        started_s = time.perf_counter()
        reply = call_next(message, context)
        compute_s = time.perf_counter() - started_s
        result = flower.read_fit(reply)
        if result.status.code != Code.OK:
            return reply
        trained = parameters_to_ndarrays(result.parameters)
        if Report.GRADIENT_DEVIATION in instruction.reports and self.gradient_deviation is not None:
            measured[Report.GRADIENT_DEVIATION] = float(self.gradient_deviation(context, trained))
        (before, _), (after, statistics) = layout.flatten(received), layout.flatten(trained)
        spec = UploadSpec(
            kept_fraction=instruction.kept_fraction,
            residual_decay=instruction.residual_decay,
            estimated=instruction.estimated,
            seed=instruction.seed,
            server_round=instruction.server_round,
            client=client,
        )

        scores = None
        if self.curvature is not None and instruction.curvature and compression.curvature_layers:
            scores = partial(_curvature, self.curvature, context, trained, layout, compression, spec)
        update, kept = upload(after - before, state, layout.layers, compression, spec, scores)
        seeded = compression.compressor == "rand-k"
        payload = encode(update, client=client, server_round=instruction.server_round, seeded=seeded)
        if not compression.lossless and instruction.keep_state:
            if compression.remembers_unsent:
                kept |= as_sent(payload, layout.size, instruction.residual_decay)
            store.save(client, instruction.server_round, kept, history)
        answer = TrainAnswer(told_loss(result.metrics), 0.0, compute_s, *last_upload(), reports=measured)
        sent: NDArrays = [np.frombuffer(payload, np.uint8), *([statistics] if instruction.statistics else [])]
        metrics = embed(answer.to_metrics(), result.metrics)
        return flower.answer_fit(reply, result, ndarrays_to_parameters(sent), metrics)

    def _reports_before(
        self,
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
        if self.losses is not None:
            losses = _losses(self.losses, context, model)
            mean, rms = float(losses.mean()), math.sqrt(float(np.square(losses).mean()))
        else:
            config: Config = flower.read_config(message)
            evaluated = flower.read_evaluation(call_next(flower.evaluation_of(model, config, message), context))
            if evaluated.status.code != Code.OK:
                raise ValueError(f"The client's evaluate does not tell its loss: {evaluated.status.message}")
            mean = rms = float(evaluated.loss)
        known = {Report.INITIAL_LOSS: mean, Report.RMS_LOSS: rms}
        return {report: known[report] for report in wanted}


def _losses(
    function: Callable[[Context, NDArrays], NDArray[Any]], context: Context, model: Parameters
) -> NDArray[np.float64]:
    """The user's losses of the model, float64 (n,)."""
    losses = np.asarray(function(context, parameters_to_ndarrays(model)), np.float64).ravel()
    if not losses.size:
        raise ValueError("The function 'losses' returned none: it gives one loss a training example.")
    return losses


def _curvature(
    function: Callable[[Context, NDArrays], NDArrays],
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


def _positions(text: str) -> list[int]:
    return [int(position) for position in text.split(",") if position]


def _store(context: Context) -> StateStore:
    """The client's states, in the node configuration's `state-dir` or in the user's own folder."""
    folder = str(context.node_config.get("state-dir", "")) or user_state_folder()
    return StateStore(Path(folder) / STATE_FOLDER, begins_anew=True)
