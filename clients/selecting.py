"""Flower mod `selecting`: a user's own ClientApp enrols, answers loss probes, compresses its updates and reports.

`ClientApp(client_fn, mods=[selecting])` is all that a client app needs. The user's `fit` and `evaluate` get their own
arrays and their own config; what fedsel's server sends beside these is read here. What nobody but the user can work
out comes from functions: `mods=[selecting(label_counts=my_counts)]`. Without fedsel's server the mod does nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common import Code, EvaluateRes, NDArrays, Status
from numpy.typing import NDArray

from clients import flower_messages as flower
from clients.own_training import UsersFunctions, losses_of, train
from fedsel_app.messages import (
    PARTITION_ID,
    AppEnrolment,
    AppTrainInstruction,
    EnrolInstruction,
    ProbeInstruction,
    embedded,
    read_evaluate_instruction,
    users_part,
)

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
    control_variates: Callable[[Context, NDArrays], None] | None = None,
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
    control_variates : (context, arrays) -> None
        Takes the term that the next `fit` is to add to each gradient, in the shapes of the model's arrays; that `fit`
        returns its `steps` and their `lr` as metrics (SCAFFOLD).
    """
    if message is None or context is None or call_next is None:
        return SelectingMod(**functions)
    return SelectingMod()(message, context, call_next)


@dataclass(frozen=True, kw_only=True)
class SelectingMod(UsersFunctions):
    """The mod with the user's functions."""

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
            return train(self, AppTrainInstruction.from_config(own), message, context, call_next)
        if isinstance(read_evaluate_instruction(own), ProbeInstruction) and self.losses is not None:
            losses = losses_of(self.losses, context, flower.read_model(message))
            return flower.answer_evaluation(message, EvaluateRes(OK, float(losses.mean()), losses.size, {}))
        return call_next(message, context)

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
