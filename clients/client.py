"""The Flower client: carries out the server's instructions and answers them (see `fedsel_app.messages`).

Flower builds a new client for every message, so a client stores nothing. The process caches data and models for all its
clients. The `StateStore` keeps the residual, the layer shares of the last mask, the solver's state and the
client's own layers.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from flwr.app import MessageType
from flwr.client import NumPyClient
from flwr.common import NDArrays
from numpy.typing import NDArray
from torch import Tensor

from clients.compressors import draw_layers
from clients.local_round import LocalRound, Trained
from clients.local_training import (
    AFTER_TRAINING,
    BEFORE_TRAINING,
    finite_buffers,
    gradient_deviation,
    loss_moments,
    train,
)
from clients.received_model import built_model, received_model
from clients.state import ClientHistory, StateStore
from fedsel_app.config import ConfigError, EvaluationConfig, SharedSettings
from fedsel_app.data.batches import DeviceData, Order, batch_order, chunks, device_data, epoch_order, loader_order
from fedsel_app.data.client_parts import client_examples
from fedsel_app.data.dataset import load
from fedsel_app.data.inputs import Inputs
from fedsel_app.data.partition import label_counts
from fedsel_app.messages.answers import FORWARD_STEPS, EnrolAnswer, EvaluateAnswer, PlaceAnswer, TrainAnswer
from fedsel_app.messages.instructions import (
    CalibrateInstruction,
    EnrolInstruction,
    Instruction,
    LocalTestInstruction,
    MaskInstruction,
    PersonalInstruction,
    PlaceInstruction,
    ProbeInstruction,
    TrainInstruction,
    UnmaskInstruction,
    read_instruction,
)
from fedsel_app.messages.scalars import METRIC, Config, Report, Scalars
from fedsel_app.models.device import naming_lack_of_memory, seeded
from fedsel_app.models.flat_model import FlatModel, batch_losses, evaluate, further_scores
from fedsel_app.models.poisoning import poisoned
from fedsel_app.models.tasks import task_of
from fedsel_app.secure_sums.buffers import BufferSection
from fedsel_app.secure_sums.statement import RefusedError, SignedKey, Statement
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update
from fedsel_app.wire.entries import decode_entries

if TYPE_CHECKING:
    from clients.masking import Masks
    from fedsel_app.exact_sums import CohortSum

Vector = NDArray[np.float32]
Ints = NDArray[np.int64]

FORWARD_BATCH = 256
"""Examples of one forward pass without gradients. Larger passes are not faster and take more memory."""


@dataclass(frozen=True, kw_only=True)
class ClientContext(SharedSettings):
    """Client context: the settings, the identity and the state store of a client."""

    client: int
    """Partition id."""
    store: StateStore
    masks: "Masks | None" = None
    """Masks of what a deployed client sends; None if it sends its updates as they are."""

    def of(self, client: int) -> Self:
        """The context of another client of the run, in a fraction of the time that building one takes."""
        context = object.__new__(type(self))
        vars(context).update(vars(self), client=client)
        return context


class SelectionClient(NumPyClient):
    """One client, for one message.

    The model arrives as [parameters (N,)] or, with buffers that travel, as [parameters, buffers (B,)], all float32.
    If the solver has control variates, a message to train ends with the server's, (N,). With `probe-bits` below 32, the
    parameters of a loss probe are uint8, a section of `fedsel_app.wire.rounded_values`. A malformed message raises
    ValueError, diverged training raises DivergenceError, and a state file that cannot be used raises StateError.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def masking(self, masks: "Masks") -> Self:
        """This client, which masks what it sends."""
        return type(self)(replace(self._context, masks=masks))

    def get_properties(self, config: Config) -> Config:
        """Answer an instruction to enrol, or the question for the place of a simulated node."""
        return self.answer(read_instruction(config, MessageType.QUERY), [])[0].to_config()

    def fit(self, parameters: NDArrays, config: Config) -> tuple[NDArrays, int, Config]:
        """Train or calibrate: the arrays of `answer`, the number of training examples, and the numbers."""
        answer, sent = self.answer(read_instruction(config, MessageType.TRAIN), parameters)
        return sent, len(self._examples()[0]), answer.to_config()

    def evaluate(self, parameters: NDArrays, config: Config) -> tuple[float, int, Config]:
        """Probe the loss or test the model: the loss, the number of examples, and the other numbers of `answer`."""
        numbers = self.answer(read_instruction(config, MessageType.EVALUATE), parameters)[0].to_config()
        return cast(float, numbers.pop("loss")), cast(int, numbers.pop("examples")), numbers

    def answer(
        self,
        instruction: Instruction,
        arrays: NDArrays,
        loaded: FlatModel | None = None,
        sums: "CohortSum | None" = None,
    ) -> tuple[Scalars, NDArrays]:
        """Carry out an instruction with the model in `arrays`.

        An evaluation takes the model that is already `loaded` from these arrays, if it is given. A training adds its
        payloads to the `sums`, if they are given, instead of returning them.

        Raises ValueError if label counts are requested but not shared, or the client has no test part to evaluate.
        Raises MachineFault if the memory of the host or the GPU does not suffice, or the state cannot be written.

        Returns
        -------
        answer : the instruction's answer in `fedsel_app.messages.answers`; without numbers after calibration
        arrays : after training the payload as uint8, a second payload with the change of the client's control variate
            if the solver has one, and the buffers if they are requested, float32 (B,). After calibration only the
            BatchNorm statistics, float32 (S,); otherwise none.
        """
        answer, sent = Scalars(), list[Any]()
        with naming_lack_of_memory(f"Client {self._context.client}"):
            match instruction:
                case PlaceInstruction():
                    answer = PlaceAnswer(self._context.client)
                case EnrolInstruction():
                    answer = self._enrol(instruction)
                case TrainInstruction():
                    sent, answer = self._train(arrays, instruction, sums)
                case MaskInstruction():
                    sent = list(self._masks().again(instruction))
                case UnmaskInstruction():
                    answer = self._masks().unmasking(instruction)
                case CalibrateInstruction():
                    sent = [self._calibrate(arrays, instruction)]
                case ProbeInstruction():
                    model = self._with_local(loaded or self.load(arrays), instruction)
                    answer = self._probe(model, instruction)
                case LocalTestInstruction():
                    answer = self._test(self._with_local(loaded or self.load(arrays), instruction))
                case _:
                    raise TypeError(f"A client has no answer to {type(instruction).__name__}.")
        return answer, sent

    def _enrol(self, instruction: EnrolInstruction) -> EnrolAnswer:
        context = self._context
        examples, _ = self._examples()
        counts = constants = b""
        if instruction.constants:
            constants = built_model(context).state.marks.astype("<f8").tobytes()
        if instruction.label_counts:
            if not context.privacy.share_label_counts:
                raise ValueError(f"Client {context.client} sends no label counts: its 'share-label-counts' is false.")
            data = load(context.data, context.run.seed)
            counts = label_counts([examples], data.y_train, data.classes)[0].astype("<i8").tobytes()
        key, signature = self._masks().enrol() if instruction.run_key else (b"", b"")
        return EnrolAnswer(
            context.client, len(examples), counts, constants=constants, run_key=key, key_signature=signature
        )

    def _masks(self) -> "Masks":
        if self._context.masks is None:
            raise ConfigError(
                "Set 'secure-sums' to masks: the server asks for a part of them, and this client has none."
            )
        return self._context.masks

    def _train(
        self, arrays: NDArrays, instruction: TrainInstruction, sums: "CohortSum | None"
    ) -> tuple[NDArrays, TrainAnswer]:
        context = self._context
        with_control = context.training.traits.control_variates
        told = None if context.masks is None else context.masks.instructed(instruction, arrays)
        model = self._with_local(received_model(context, arrays, with_control=with_control), instruction)
        masked = None if told is None else partial(self._masked, instruction, arrays, model.state.variances, *told)
        local_round = LocalRound(
            client=context.client,
            seed=context.run.seed,
            training=context.training,
            compression=context.compression,
            layers=model.layers,
            store=context.store,
            examples=len(self._examples()[0]),
        )
        control = arrays[-1] if with_control else None
        return local_round.answer(
            *(instruction, arrays[0], control, lambda term: self._trained(model, term, instruction), sums, masked),
            tells_norm=context.privacy.clear_number == "norm",
        )

    def _masked(
        self,
        instruction: TrainInstruction,
        arrays: NDArrays,
        variances: NDArray[np.bool_],
        statement: Statement,
        keys: Mapping[int, SignedKey],
        update: Update,
        buffers: Vector | None,
    ) -> NDArrays:
        """What the client sends of an update, and of its buffers if they are requested, under its masks."""
        further = np.zeros(0, np.int64)
        if buffers is not None:
            entries = decode_entries(instruction.entries or b"", arrays[0].size, instruction.server_round)
            section = BufferSection(arrays[1], variances, instruction.buffers_exponent or 0, entries)
            further = section.numbers(buffers, len(self._examples()[0]))
        return list(self._masks().masked(statement, keys, update, further))

    def _trained(self, model: FlatModel, correction: Vector | None, instruction: TrainInstruction) -> Trained:
        """Train the loaded model, and measure the numbers that the instruction requests."""
        context, training = self._context, self._context.training
        examples, _ = self._examples()
        self._count(model, also=context.task.positive_weights == "client")
        rng = stream(context.run.seed, Purpose.TRAIN, instruction.server_round, context.client)
        steps = instruction.local_steps or (0 if instruction.local_epochs else training.local_steps)
        if not steps:
            epochs = instruction.local_epochs or training.local_epochs
            draw = partial(epoch_order, len(examples), training.batch_size, epochs, least=model.least_batch)
            order = Order(draw, rng)
        else:
            order = self._order(len(examples), steps, rng, model.least_batch)
        self._refuse_few(order.examples, examples)
        batches = self._batches(examples, order, model, rng)
        attackers = context.attack.attackers_in(instruction.server_round, context.run)
        if context.attack.traits.poisons and context.client in attackers:
            batches = self._poisoned(batches, model)
        started = time.perf_counter()
        wanted = set(instruction.reports)
        passes = chunks(np.arange(len(examples)), training.batch_size) if wanted else []
        measured: dict[Report, float] = {}
        extra_steps = 0.0
        if wanted & BEFORE_TRAINING:
            measured |= loss_moments(model, self._batches(examples, passes, model))
            extra_steps += len(passes) * FORWARD_STEPS
        term = None if correction is None else model.arranged(correction)
        with seeded(_seed(rng), model.parameters.device):
            loss, steps = train(model, batches, training, instruction.learning_rate, term)
        statistics = finite_buffers(model) if instruction.statistics else None
        measured[Report.EFFECTIVE_STEPS] = training.effective_steps(steps)
        if wanted & AFTER_TRAINING:
            deviation = gradient_deviation(model, self._batches(examples, passes, model))
            measured[Report.GRADIENT_DEVIATION] = deviation
            extra_steps += len(passes)
        told: dict[str, float] = {name: measured[name] for name in instruction.reports}
        if instruction.metrics:
            tested = self._test_part() if instruction.test_part else examples
            scores = self._measured(model, tested, instruction.metrics).scores
            told |= {METRIC + name: value for name, value in scores.items()}
            extra_steps += math.ceil(tested.size / training.batch_size) * FORWARD_STEPS
        compute_s = time.perf_counter() - started
        return Trained(
            parameters=model.export(),
            loss=loss,
            compute_s=compute_s,
            work_steps=steps + extra_steps,
            steps=steps,
            lr=instruction.learning_rate,
            statistics=statistics,
            reports=told,
            local=model.export_local(),
            curvature=lambda shares: self._curvature(model, shares, instruction.server_round),
        )

    def _poisoned(self, batches: Iterator[tuple[Inputs, Tensor]], model: FlatModel) -> Iterator[tuple[Inputs, Tensor]]:
        """The mini-batches as an attacker of a simulation changes them."""
        context = self._context
        classes = load(context.data, context.run.seed).classes
        return poisoned(batches, context.attack, classes, self._device_data(model).brightest)

    def _curvature(self, model: FlatModel, shares: NDArray[np.float64], server_round: int) -> dict[int, Vector]:
        """Diagonal curvature at the trained weights, from one mini-batch, for the layers that the Markov rule draws."""
        from clients.curvature import hutchinson_diagonal

        context, choice = self._context, self._context.compression
        examples, _ = self._examples()
        rng = stream(context.run.seed, Purpose.COMPRESS, server_round, context.client)
        layers = draw_layers(shares, choice.curvature_layers, rng)
        order = self._order(len(examples), 1, rng, model.least_batch)
        training = choice.as_coded
        [(x, y)] = self._batches(examples, order, model, rng if training else None)
        with seeded(_seed(rng), model.parameters.device) if training else nullcontext():
            signs_on = range(len(model.layers)) if choice.as_coded else None
            return hutchinson_diagonal(
                model, layers.tolist(), x, y, rng, context.training.proximal, training=training, signs_on=signs_on
            )

    def _calibrate(self, arrays: NDArrays, instruction: CalibrateInstruction) -> Vector:
        """Update only the BatchNorm statistics, by mini-batches in train mode (Alg. 1, line 13)."""
        context = self._context
        if context.masks is not None:
            raise RefusedError("The server asks for BatchNorm statistics, which nothing masks. This client sends none.")
        model = self._with_local(received_model(context, arrays, batches=instruction.earlier_batches), instruction)
        examples, _ = self._examples()
        rng = stream(context.run.seed, Purpose.CALIBRATE, instruction.server_round, context.client)
        order = self._order(len(examples), instruction.batches, rng, model.least_batch)
        self._refuse_few(order.examples, examples)
        batches = self._batches(examples, order, model, rng)
        model.state.train()
        with seeded(_seed(rng), model.parameters.device), torch.no_grad():
            for x, _ in batches:
                model.outputs(x)
        return finite_buffers(model)[: model.state.variances.size]

    def _probe(self, model: FlatModel, instruction: ProbeInstruction) -> EvaluateAnswer:
        context = self._context
        examples = self._test_part() if instruction.test_part else self._examples()[0]
        rng = stream(context.run.seed, Purpose.PROBE, instruction.server_round, context.client)
        self._count(model)
        one_pass = chunks(np.arange(len(examples)), context.training.batch_size)
        as_coded = context.compression.as_coded
        most = len(one_pass) if as_coded else instruction.batches
        batches = min(instruction.batches, most)
        order = self._order(len(examples), batches, rng) if batches else one_pass
        answer, drawn = EvaluateAnswer(), np.concatenate(list(order))
        self._refuse_few(drawn.size, examples)
        if instruction.metrics or not as_coded:
            answer = self._measured(model, examples[drawn], instruction.metrics)
        if as_coded:
            losses = batch_losses(model, self._batches(examples, order, model, rng))
            answer = replace(answer, loss=float(np.mean([loss / count for loss, count in losses])))
        return replace(answer, examples=drawn.size)

    def _measured(self, model: FlatModel, examples: Ints, metrics: str) -> EvaluateAnswer:
        """The loss of these examples, and the `metrics`, separated by commas, that are defined."""
        dataset = load(self._context.data, self._context.run.seed)
        batches = self._batches(examples, chunks(np.arange(examples.size), FORWARD_BATCH), model)
        asked = {name: EvaluationConfig(score=name) for name in metrics.split(",") if name}
        functions = tuple(dict.fromkeys(metric for each in asked.values() for metric in each.measured))
        result = evaluate(model, batches, further_scores(functions, dataset.task))
        keys = {name: each.score_key(dataset.names) for name, each in asked.items()}
        scores = {name: result.scores[key] for name, key in keys.items() if key in result.scores}
        return EvaluateAnswer(result.loss, result.examples, scores)

    def _test(self, model: FlatModel) -> EvaluateAnswer:
        test = self._test_part()
        self._refuse_few(test.size, test)
        self._count(model)
        context = self._context
        further = further_scores(context.evaluation.measured, load(context.data, context.run.seed).task)
        result = evaluate(model, self._batches(test, chunks(np.arange(test.size), FORWARD_BATCH), model), further)
        return EvaluateAnswer(result.loss, result.examples, result.scores)

    def _count(self, model: FlatModel, *, also: bool = False) -> None:
        """Give the model a task for which this client's training examples are counted, if the settings say so."""
        context = self._context
        if context.task.balanced or also:
            dataset, (examples, _) = load(context.data, context.run.seed), self._examples()
            model.task = task_of(dataset, model.parameters.device, context.task, examples)

    def _test_part(self) -> Ints:
        _, test = self._examples()
        if not test.size:
            raise ValueError(f"Client {self._context.client} has no test part: raise 'holdout-fraction'.")
        return test

    def _refuse_few(self, count: int, examples: Ints) -> None:
        """Raise ConfigError if an answer from `count` of these examples, or all, reveals more than the owner allows."""
        context, count = self._context, min(count, len(examples))
        least = context.privacy.least_update_examples
        if count < least:
            raise ConfigError(
                f"Client {context.client} would answer from {count} of its examples, and its owner's "
                f"'least-update-examples' is {least}. Raise 'local-steps', 'local-epochs', 'batch-size' or "
                "'calibration-batches' on the server, or the batches of a probe."
            )

    def _order(self, examples: int, batches: int, rng: np.random.Generator, least: int = 1) -> Order:
        """Positions of the examples of `batches` mini-batches of `least` or more, by the setting `details`."""
        batch_size = self._context.training.batch_size
        if self._context.compression.as_coded:
            return Order(partial(loader_order, examples, batch_size, batches, least=least), rng)
        return Order(partial(batch_order, examples, batch_size, batches), rng)

    def _examples(self) -> tuple[Ints, Ints]:
        """This client's training and test examples, as indices into the data set's training part."""
        context = self._context
        return client_examples(context.data, context.partition, context.run.clients, context.run.seed, context.client)

    def _with_local(self, model: FlatModel, instruction: TrainInstruction | PersonalInstruction) -> FlatModel:
        """The loaded model, with the layers that stay with this client as its last training left them."""
        if model.lacking:
            history = ClientHistory(instruction.last_instructed, instruction.last_aggregated)
            store = self._context.store.of_run(instruction.run_key)
            model.load_local(store.recall_local(self._context.client, history))
        return model

    def load(self, arrays: NDArrays) -> FlatModel:
        """Check the received arrays of a model to evaluate, and load it on the device of this process."""
        with naming_lack_of_memory(f"Client {self._context.client}"):
            return received_model(self._context, arrays, probed=True)

    def _batches(
        self, examples: Ints, order: Iterable[Ints], model: FlatModel, rng: np.random.Generator | None = None
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """The mini-batches at the positions `order` of `examples`; augmented if `rng` is given."""
        data = self._device_data(model)
        generator = None if rng is None else torch.Generator().manual_seed(_seed(rng))
        return data.train_batches((examples[positions] for positions in order), generator)

    def _device_data(self, model: FlatModel) -> DeviceData:
        context = self._context
        return device_data(context.data, context.preprocessing, context.run.seed, model.parameters.device)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63 - 1))
