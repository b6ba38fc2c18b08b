"""A user's own ClientApp in fedsel's rounds: `client_app()` replaces Flower's `ClientApp()`.

It enrols, answers loss probes, compresses the updates, stores the client's state and sends reports. The user's
`@app.train()` and `@app.evaluate()` get only the user's own records. Without fedsel's server it behaves like Flower's.

The user's functions compute what only the user can compute. Without `losses` the client's loss comes from its own
evaluation. Then the mean loss replaces the root mean squared loss (Oort's utility), which is at least as large.
"""

import json
import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import NDArray

from clients.local_round import LocalRound, Trained
from clients.state import STATE_FOLDER, StateStore, user_state_folder
from fedsel_app.config import CompressionConfig, ConfigError, TrainingConfig
from fedsel_app.imports import LEGACY
from fedsel_app.messages.answers import Ability, EnrolAnswer, EvaluateAnswer
from fedsel_app.messages.instructions import EnrolInstruction, ProbeInstruction, read_instruction
from fedsel_app.messages.records import MACHINE_FAULT, fedsel_config, named_arrays, put_answer
from fedsel_app.messages.reported_values import one_line
from fedsel_app.messages.scalars import Config, Report
from fedsel_app.records.files import MachineFault
from simulation.apps.client.array_layout import ArrayLayout
from simulation.apps.client.messages import (
    ENROL,
    EVALUATION,
    EVALUATION_LOSSES,
    LOSS_REPORTS,
    PARTITION_ID,
    AppTrainInstruction,
    no_loss,
    reported_loss,
    users_arrays,
    users_records,
)

T = TypeVar("T")
Vector = NDArray[np.float32]
Losses = Callable[[Context, Any], NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Functions:
    """A user's functions, which compute what only the user can compute. Their arrays are an ArrayRecord."""

    examples: Callable[[Context], int] | None = None
    """Number of training examples of this client; without it the server learns the number from the first training."""
    losses: Losses | None = None
    """Loss of the model on each of the client's training examples, float (n,)."""
    label_counts: Callable[[Context], Sequence[int]] | None = None
    """Number of training examples of each class; their sum is the number of examples."""
    gradient_deviation: Callable[[Context, Any], float] | None = None
    """Root of the mean squared distance of the mini-batch gradients from their mean, at the trained model."""

    @property
    def abilities(self) -> tuple[Ability, ...]:
        """The functions that the user has given."""
        return tuple(ability for ability in Ability if getattr(self, ability) is not None)


class Unanswered(Exception):
    """The user's code did not carry out the message. `reply` is its reply."""

    def __init__(self, reply: Message, reason: str) -> None:
        super().__init__(reason)
        self.reply = reply


@dataclass(frozen=True)
class UserClient:
    """A user's client that answers a message of fedsel's server, in the layout of `fedsel_app.messages.records`."""

    message: Message
    context: Context
    code: ClientAppCallable
    """The user's code, which gets the user's own records. Raises Unanswered if it does not carry out the message."""
    functions: Functions

    def answer(self) -> Message:
        """Answer the message, after removing fedsel's records from it."""
        config = fedsel_config(self.message.content) or {}
        evaluation = self.message.content.config_records.get(EVALUATION)
        self.message.content = users_records(self.message.content)
        kind = self.message.metadata.message_type.split(".")[0]
        if kind == MessageType.QUERY:
            return self._reply(self.enrolment(EnrolInstruction.from_config(config)).to_config())
        try:
            if kind == MessageType.TRAIN:
                return self._train(AppTrainInstruction.from_config(config), evaluation)
            if (function := self.functions.losses) and isinstance(read_instruction(config, kind), ProbeInstruction):
                losses = self._losses(function)
                return self._reply(EvaluateAnswer(float(losses.mean()), losses.size).to_config())
            return called("evaluate", self.code, self.message, self.context)
        except Unanswered as unanswered:
            return unanswered.reply
        except MachineFault as error:
            return self._reply({MACHINE_FAULT: str(error)})

    def _reply(self, numbers: Config) -> Message:
        content = RecordDict()
        put_answer(content, numbers)
        return Message(content, reply_to=self.message)

    def enrolment(self, instruction: EnrolInstruction) -> EnrolAnswer:
        """Identity from the node configuration, and numbers of examples if a function returns them.

        Raises ValueError without a partition id.
        """
        counts, examples, functions = b"", 0, self.functions
        if functions.label_counts is not None:
            by_class = _whole("label_counts", called("label_counts", functions.label_counts, self.context))
            examples = int(by_class.sum())
            counts = by_class.astype("<i8").tobytes() if instruction.label_counts else b""
        if functions.examples is not None:
            examples = int(_whole("examples", called("examples", functions.examples, self.context)))
        client = self.context.node_config.get(PARTITION_ID)
        if not isinstance(client, int):
            raise ValueError(
                f"`client_app` needs a '{PARTITION_ID}' in the node configuration: "
                'flower-supernode --node-config "partition-id=0 num-partitions=..."'
            )
        return EnrolAnswer(client, examples, counts, functions.abilities)

    # Losses ---------------------------------------------------------------------------------------------------

    def _losses(self, function: Losses) -> NDArray[np.float64]:
        """The user's losses of the received model, float64 (n,). Raises ValueError if there are none."""
        _, record = users_arrays(self.message.content)
        losses = np.asarray(called("losses", function, self.context, ArrayRecord(dict(record))), np.float64)
        if not losses.size or losses.shape[:1] != (losses.size,):
            other = f"an array of the shape {losses.shape}" if losses.size else "no losses"
            raise ValueError(f"The function 'losses' must return one loss for each training example, and not {other}.")
        return losses

    def _evaluated_loss(self, key: str, config: ConfigRecord | None) -> float:
        """Loss of the received model from the user's evaluation, with its own `config` in place of the training's.

        Raises ValueError if the evaluation has no loss.
        """
        content = RecordDict(dict(self.message.content))
        if config is not None:
            content.update(dict.fromkeys(content.config_records, config))
        name, record = users_arrays(content)
        content[name] = ArrayRecord(dict(record))  # the user's evaluation may empty it
        question = Message(content, reply_to=self.message)
        question.metadata.message_type = MessageType.EVALUATE
        try:
            reply = content_of(called("evaluate", self.code, question, self.context))
        except Unanswered as unanswered:
            raise ValueError(f"The client's evaluate does not return its loss: {unanswered}") from unanswered
        names, metrics = [key] if key else EVALUATION_LOSSES, _scalars(reply, MetricRecord)
        loss = reported_loss(metrics, names)
        if math.isnan(loss):
            raise ValueError(no_loss(metrics, names))
        return loss

    def _reports_before(self, instruction: AppTrainInstruction, evaluation: ConfigRecord | None) -> dict[str, float]:
        """Reports on the received model that the instruction asks for."""
        wanted = LOSS_REPORTS & set(instruction.reports)
        if not wanted:
            return {}
        if self.functions.losses is not None:
            losses = self._losses(self.functions.losses)
            mean, rms = float(losses.mean()), math.sqrt(float(np.square(losses).mean()))
        else:
            mean = self._evaluated_loss(instruction.loss_key, evaluation)
            rms = abs(mean)
        measures = {Report.INITIAL_LOSS: mean, Report.RMS_LOSS: rms}
        return {report: measures[report] for report in wanted}

    # Training -------------------------------------------------------------------------------------------------

    def _train(self, instruction: AppTrainInstruction, evaluation: ConfigRecord | None) -> Message:
        """Run a local round with the user's training."""
        name, record = users_arrays(self.message.content)
        received = named_arrays(record)
        positions = [int(position) for position in instruction.statistics_positions.split(",") if position]
        layout = ArrayLayout(received, positions)
        before, _ = layout.initial()
        local_round = LocalRound(
            client=int(self.context.node_config[PARTITION_ID]),
            seed=instruction.seed,
            training=TrainingConfig(solver="sgd", momentum=0.0),
            compression=CompressionConfig.from_values(json.loads(instruction.compression)),
            layers=layout.layers,
            store=self._store(),
        )
        reply = self.message

        def train(correction: Vector | None) -> Trained:
            nonlocal name, reply
            measured = self._reports_before(instruction, evaluation)
            started_s = time.perf_counter()
            reply = called("train", self.code, self.message, self.context)
            compute_s = time.perf_counter() - started_s
            name, record = users_arrays(content_of(reply), name)
            metrics = _scalars(reply.content, ConfigRecord, MetricRecord)
            measured |= self._reports_after(instruction, record)
            after = layout.in_order(named_arrays(record))
            parameters, moved = layout.flatten(after)
            if not instruction.exact:
                layout.refuse_tied(list(received.values()), after)
            return Trained(
                parameters=parameters,
                loss=reported_loss(metrics),
                compute_s=compute_s,
                statistics=moved if instruction.statistics else None,
                reports=measured,
            )

        sent, numbers = local_round.answer(instruction, before, None, train)
        reply.content[name] = ArrayRecord(sent)
        put_answer(reply.content, numbers.to_config())
        return reply

    def _reports_after(self, instruction: AppTrainInstruction, trained: ArrayRecord) -> dict[str, float]:
        """The gradient deviation of the trained model, if the server requests it and the user has a function for it."""
        function = self.functions.gradient_deviation
        if Report.GRADIENT_DEVIATION not in instruction.reports or function is None:
            return {}
        deviation = called("gradient_deviation", function, self.context, ArrayRecord(dict(trained)))
        return {Report.GRADIENT_DEVIATION: float(deviation)}

    def _store(self) -> StateStore:
        """The client's states, in the node configuration's `state-dir` or in the user's own folder."""
        folder = str(self.context.node_config.get("state-dir", "")) or user_state_folder()
        return StateStore(Path(folder) / STATE_FOLDER, begins_anew=True)


def called(name: str, function: Callable[..., T], *arguments: Any) -> T:
    """What a user's function returns.

    Raises RuntimeError with the function's `name`, the type of its exception, and the line of the user's code.
    """
    try:
        return function(*arguments)
    except (Unanswered, MachineFault):
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        frames = [frame for frame in frames if "site-packages" not in frame.filename] or frames
        line = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        raise RuntimeError(f"The function '{name}' failed with {type(error).__name__}: {error}{line}") from error


def content_of(reply: Message) -> RecordDict:
    """Content of the user's reply. Raises Unanswered if it is an error, and TypeError if it is no message."""
    if not isinstance(reply, Message):
        raise TypeError(f"A client's function must return Message(content, reply_to=message). It returned {reply!r}.")
    if reply.has_error():
        raise Unanswered(reply, reply.error.reason or f"error {reply.error.code}")
    return reply.content


def _whole(function: str, returned: Any) -> NDArray[np.int64]:
    """The whole numbers that a user's function returned. Raises ValueError for others."""
    numbers = np.asarray(returned, np.float64)
    if not (np.isfinite(numbers) & (numbers == np.rint(numbers))).all():
        raise ValueError(f"The function {function!r} must return whole numbers. It returned {one_line(returned)}.")
    return numbers.astype(np.int64)


def _scalars(content: RecordDict, *kinds: type[ConfigRecord] | type[MetricRecord]) -> Config:
    """The values of all records of these kinds; of equal keys the last value counts."""
    values: dict[str, Any] = {}
    for kind in kinds:
        for record in content.values():
            if isinstance(record, kind):
                values.update(record)
    return values


Decorator = Callable[[ClientAppCallable], ClientAppCallable]
DEFAULT = "default"
"""Flower's name of the default action, for a message type without an action."""


def client_app(client_fn: None = None, *, mods: list[Mod] | None = None, **functions: Any) -> ClientApp:
    """Build a ClientApp for `@app.train()` and `@app.evaluate()`, like Flower's own.

    The functions are those of `Functions`. They compute what only the user can compute.

    Raises ConfigError for a function of another name, and for the `client_fn` of Flower's legacy API.
    """
    if client_fn is not None:
        raise ConfigError(LEGACY)
    names = [field.name for field in fields(Functions)]
    if unknown := [name for name in functions if name not in names]:
        raise ConfigError(f"client_app() takes the functions {', '.join(names)}, and mods. Got {', '.join(unknown)}.")
    return SelectingApp(mods, Functions(**functions))


class SelectingApp(ClientApp):
    """A ClientApp that answers fedsel's server with the user's functions that are registered with it.

    A second ClientApp has these functions. One message may call the second app several times, but enters the lifespan
    of this app only once.
    """

    def __init__(self, mods: list[Mod] | None, functions: Functions) -> None:
        super().__init__()
        self._users = ClientApp(mods=mods)
        self._functions = functions
        for register in (super().query, super().train, super().evaluate):
            register()(self._answer)
        super().query(ENROL.split(".")[1])(self._answer)

    def _answer(self, message: Message, context: Context) -> Message:
        if fedsel_config(message.content) is None:
            return self._users(message, context)
        return UserClient(message, context, self._users, self._functions).answer()

    def query(self, action: str = DEFAULT, *, mods: list[Mod] | None = None) -> Decorator:
        """Register a query function, as Flower's ClientApp does."""
        return self._registering(self._users.query(action, mods=mods), super().query, action)

    def train(self, action: str = DEFAULT, *, mods: list[Mod] | None = None) -> Decorator:
        """Register a train function, as Flower's ClientApp does."""
        return self._registering(self._users.train(action, mods=mods), super().train, action)

    def evaluate(self, action: str = DEFAULT, *, mods: list[Mod] | None = None) -> Decorator:
        """Register an evaluate function, as Flower's ClientApp does."""
        return self._registering(self._users.evaluate(action, mods=mods), super().evaluate, action)

    def _registering(self, users: Decorator, register: Callable[[str], Decorator], action: str) -> Decorator:
        def decorator(function: ClientAppCallable) -> ClientAppCallable:
            users(function)
            if action != DEFAULT:
                register(action)(self._answer)
            return function

        return decorator
