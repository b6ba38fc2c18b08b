"""Clients of a user's Flower app: their models and replies in the user's form, and what the server learns of them."""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Parameters,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.client_proxy import ClientProxy
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.messages import (
    MOST_EXAMPLES,
    Ability,
    AppEnrolment,
    AppTrainInstruction,
    Config,
    EnrolAnswer,
    ProbeInstruction,
    Report,
    Scalar,
    TrainAnswer,
    TrainInstruction,
    embed,
    embedded,
    lower_median,
    one_line,
    read_evaluate_instruction,
    read_fit_instruction,
    reported_loss,
    winsorised,
)
from fedsel_app.models.array_layout import ArrayLayout
from fedsel_app.records.schema import EnrolmentRecord
from fedsel_app.wire.codec import Update, encode
from simulation.experiments.configuration import AppConfig
from simulation.flower_app.identities import Identities
from simulation.flower_app.requirements import unmet
from strategies.roster import Roster

LOGGER = logging.getLogger("fedsel")
OK = Status(Code.OK, "")
MIXED = (
    "Some clients tell which they are and some do not, so that two may seem to be the same: give every ClientApp "
    "mods=[selecting], or none of them, or let every get_properties return its 'partition-id'."
)
RoundConfig = Callable[[int], Config]
"""Config of the user's that goes with a round's messages, by the number of the round."""


class AppClients:
    """Clients of a user's own app.

    Parameters
    ----------
    layout : of the user's model
    roster : of the round; examples are written into it as soon as a client's are known
    identities : of the clients that do not tell theirs
    known_examples : partition id -> examples, of the clients on record

    Attributes
    ----------
    fit_config, evaluate_config : the user's configs of the messages
    identities : of the clients that do not tell theirs
    refusal : sentence on why the last client that cannot take part cannot; empty where all can
    last_failure : sentence on the last message that failed; empty where none has
    """

    def __init__(
        self,
        config: AppConfig,
        layout: ArrayLayout,
        roster: Roster,
        identities: Identities,
        known_examples: Mapping[int, int],
    ) -> None:
        self._config, self._layout, self._roster = config, layout, roster
        self.fit_config: RoundConfig = _nothing
        self.evaluate_config: RoundConfig = _nothing
        self.identities = identities
        self.refusal = self.last_failure = ""
        self._stand_in_noted = False
        self._examples = np.zeros(config.run.clients, np.int64)
        for client, examples in known_examples.items():
            self._examples[client] = examples
        self._recorded = set(known_examples)
        self._abilities: dict[str, frozenset[Ability] | None] = {}
        self._clients: dict[str, int] = {}
        self._tell_identity: set[bool] = set()
        self._model: tuple[Parameters | None, Parameters | None] = (None, None)

    @property
    def any_enrolled(self) -> bool:
        """True if a client can take part."""
        return bool(self._clients)

    # Enrolment ------------------------------------------------------------------------------------------------

    def enrol(self, proxy: ClientProxy, ins: GetPropertiesIns, timeout: float | None) -> GetPropertiesRes:
        """Enrol a client with the mod or without it. Raises ConfigError where it cannot do what the run needs."""
        asked = GetPropertiesIns(embed(ins.config, {}))
        reply = proxy.get_properties(asked, timeout, None)
        implemented = reply.status.code == Code.OK
        enrolment = AppEnrolment.from_properties(reply.properties if implemented else {})
        if sentence := unmet(self._config, enrolment.abilities):
            self.refusal = sentence
            raise ConfigError(sentence)
        self._note_stand_in(enrolment.abilities)
        self._tell_identity.add(enrolment.client is not None)
        if len(self._tell_identity) > 1:
            LOGGER.warning(MIXED)
        client = self.identities.number(proxy.cid) if enrolment.client is None else enrolment.client
        self._abilities[proxy.cid], self._clients[proxy.cid] = enrolment.abilities, client
        examples = enrolment.examples
        if 0 <= client < self._config.run.clients:
            if examples:
                self._examples[client] = min(examples, MOST_EXAMPLES)
                self._recorded.add(client)
            else:
                # On record already, with a stand-in: the record of its enrolment follows with its examples.
                examples = self._roster.examples[client] = int(self._roster.examples[client]) or self._stand_in()
        answer = EnrolAnswer(client, int(examples), enrolment.label_counts)
        return GetPropertiesRes(OK, answer.to_properties())

    def _note_stand_in(self, abilities: frozenset[Ability] | None) -> None:
        """Log once where clients have no function for the losses that a report is made of."""
        needed = Report.RMS_LOSS in self._config.strategy.needs(self._config.method).reports
        if needed and abilities is not None and Ability.LOSSES not in abilities and not self._stand_in_noted:
            self._stand_in_noted = True
            LOGGER.warning(
                "The strategy %s reckons with the root of each client's mean squared loss. The clients' mod has no "
                "function for it, selecting(losses=...): the mean loss of their evaluate stands in.",
                self._config.run.strategy,
            )

    def _stand_in(self) -> int:
        """Examples that a client counts for until it tells them: the median of the others', or 1."""
        middle = lower_median(np.where(self._examples > 0, self._examples, np.nan).astype(np.float64))
        return 1 if math.isnan(middle) else int(middle)

    def count_examples(self, server_round: int) -> list[EnrolmentRecord]:
        """Write the examples that clients reported with their replies into the roster; the records of the new ones."""
        reported = self._examples > 0
        if not reported.any():
            return []
        roster, claimed = self._roster, self._examples.astype(np.float64)
        bounded = winsorised(claimed, self._config.claims.example_clip, claimed[reported])
        enrolled = roster.examples > 0
        roster.examples[enrolled & ~reported] = self._stand_in()
        roster.examples[reported] = np.maximum(bounded[reported], 1.0).astype(np.int64)
        steps = self._config.training.steps
        roster.local_steps[enrolled] = [steps(examples) for examples in roster.examples[enrolled].tolist()]
        new = [client for client in np.flatnonzero(reported).tolist() if client not in self._recorded]
        self._recorded.update(new)
        return [EnrolmentRecord(client, server_round, int(self._examples[client])) for client in new]

    # Training -------------------------------------------------------------------------------------------------

    def model(self, flat: Parameters) -> Parameters:
        """The round's model, flat parameters and statistics, as the user's list of arrays; then a control variate."""
        before, model = self._model
        if before is not flat or model is None:
            parameters, *others = parameters_to_ndarrays(flat)
            statistics = others.pop(0) if self._layout.statistics else np.zeros(0, np.float32)
            model = ndarrays_to_parameters([*self._layout.restore(parameters, statistics), *others])
            self._model = flat, model
        return model

    def fit(self, proxy: ClientProxy, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Let a client train in its own way; its reply in the round's form.

        Raises
        ------
        ValueError
            If it returned another model, or no number of examples.
        """
        instruction = read_fit_instruction(ins.config)
        if not isinstance(instruction, TrainInstruction):
            raise ValueError("A user's own client calibrates nothing.")
        client, abilities = self._clients[proxy.cid], self._abilities[proxy.cid]
        config = embed(self._instruction(instruction).to_config(), self.fit_config(instruction.server_round))
        model = self.model(ins.parameters)
        measured: dict[Report, float] = {}
        if abilities is None and Report.INITIAL_LOSS in instruction.reports:
            measured[Report.INITIAL_LOSS] = self._loss(proxy, model, instruction.server_round, timeout)
        started_s = time.monotonic()
        reply = proxy.fit(FitIns(model, config), timeout, group_id)
        took_s = time.monotonic() - started_s
        if reply.status.code != Code.OK:
            return reply
        if not 1 <= reply.num_examples <= MOST_EXAMPLES:
            raise ValueError(f"Client {client} says that it trained on {reply.num_examples} examples: 1 at least.")
        self._examples[client] = reply.num_examples
        steps = float(self._config.training.steps(reply.num_examples))
        if abilities is not None:
            metrics = self._with_steps(embedded(reply.metrics), steps)
            return FitRes(OK, reply.parameters, reply.num_examples, metrics)
        answer = TrainAnswer(reported_loss(reply.metrics), steps, took_s, reports=measured)
        (after, statistics), (before, _) = map(
            self._layout.flatten, (parameters_to_ndarrays(reply.parameters), parameters_to_ndarrays(model))
        )
        update = Update(after.size, None, after - before)
        payload = np.frombuffer(encode(update, client=client, server_round=instruction.server_round), np.uint8)
        sent: list[NDArray[np.generic]] = [payload, *([statistics] if instruction.statistics else [])]
        return FitRes(OK, ndarrays_to_parameters(sent), reply.num_examples, answer.to_metrics())

    def _instruction(self, instruction: TrainInstruction) -> AppTrainInstruction:
        return AppTrainInstruction(
            **vars(instruction),
            seed=self._config.run.seed,
            compression=json.dumps(self._config.compression.values()),
            statistics_positions=",".join(map(str, self._layout.statistics)),
            with_control=self._config.training.solver == "scaffold",
        )

    @staticmethod
    def _with_steps(metrics: Mapping[str, Scalar], steps: float) -> Config:
        """The mod's metrics with the server's own count of steps, which no client of a user's knows."""
        reports = [report for report in Report if report in metrics]
        return replace(TrainAnswer.from_metrics(metrics, reports, loss_optional=True), work_steps=steps).to_metrics()

    # Evaluation -----------------------------------------------------------------------------------------------

    def evaluate(
        self, proxy: ClientProxy, ins: EvaluateIns, timeout: float | None, group_id: int | None
    ) -> EvaluateRes:
        """Let a client evaluate in its own way: its own test, and as a loss probe unless its mod has `losses`."""
        instruction = read_evaluate_instruction(ins.config)
        config = embed(instruction.to_config(), self.evaluate_config(instruction.server_round))
        return proxy.evaluate(EvaluateIns(self.model(ins.parameters), config), timeout, group_id)

    def _loss(self, proxy: ClientProxy, model: Parameters, server_round: int, timeout: float | None) -> float:
        """Loss of the model by a client's `evaluate`. Raises ValueError if it does not tell one."""
        config = embed(ProbeInstruction(server_round, 0).to_config(), self.evaluate_config(server_round))
        reply = proxy.evaluate(EvaluateIns(model, config), timeout, None)
        if reply.status.code != Code.OK:
            raise ValueError(f"The loss before training is not known: {reply.status.message}")
        return float(reply.loss)

    def note_failure(self, proxy: ClientProxy, error: object) -> None:
        """Keep the last failure, for the sentence with which a run ends that nobody contributed to."""
        name = f"Client {self._clients[proxy.cid]}" if proxy.cid in self._clients else f"Node {proxy.cid}"
        self.last_failure = f"{name}: {one_line(error)}"


def _nothing(server_round: int) -> Config:
    return {}
