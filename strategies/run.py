"""Run in progress: the plan of a round, and all state that the next round and a checkpoint need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.records.schema import RoundRecord
from strategies.aggregation.server_state import ServerState
from strategies.checkpoint import Arrays, BestModel, Stateful, gather, matching, scatter
from strategies.method import ConfigT, SelectionMethod
from strategies.participation.intermediate_round import IntermediateRound
from strategies.participation.isp import ISP
from strategies.participation.schedules import Participation
from strategies.roster import RoundInfo, Selection
from strategies.round.clients import ConnectedClients
from strategies.round.federation import SentModel, Until
from strategies.round.instructions import InstructionBuilder
from strategies.round.probing import ClientProber, Probe
from strategies.round.replies import ReplyCollector
from strategies.run_context import RunContext


class RoundCount:
    """Round count of a run: maps Flower rounds to the setting `rounds`, and finds the last Flower round.

    Flower rounds are numbered from 1, also after a restart. A method may have rounds of its own, each with several
    Flower rounds (`SelectionMethod.most_iterations` above 1). `rounds` then counts the method's rounds, the schedules
    of the learning rate and of the budget follow them, and the model is evaluated at their ends.
    """

    def __init__(self, method: SelectionMethod[Any]) -> None:
        rounds = method.context.run.rounds
        self._method, self._rounds, self._eval_every = method, rounds, method.context.evaluation.eval_every
        self._own = method.most_iterations(method.config) > 1
        self.most = rounds * method.most_iterations(method.config)
        """Largest number of Flower rounds of the run."""

    def info(self, number: int) -> RoundInfo:
        """Return the round info of Flower round `number`; the roster holds its clients."""
        return RoundInfo(number, self._rounds, *(self._next() if self._own else ()))

    def over(self, number: int) -> bool:
        """True if the run is over after Flower round `number`."""
        return number >= self.most or (self._own and self._next()[0] > self._rounds)

    def evaluates(self, number: int) -> bool:
        """True if the model is evaluated after Flower round `number`: every `eval-every` rounds, and after the last."""
        if not self._own:
            return number % self._eval_every == 0 or self.over(number)
        following, iteration = self._next()
        return self.over(number) or (iteration == 1 and (following - 1) % self._eval_every == 0)

    def _next(self) -> tuple[int, int]:
        return self._method.own_round(self._method.roster)


@dataclass(frozen=True)
class Plan:
    """Plan of a round: the decisions of its first half, which the second half uses.

    Attributes
    ----------
    instructions : client -> its train instruction, by ascending id
    model : the model as it is sent to the clients
    until : end of the wait for their replies
    wanted : number of replies to aggregate, the first that arrive
    intermediate : the search for the size of this cohort; None without a search
    """

    round_info: RoundInfo
    probe: Probe
    selection: Selection
    instructions: dict[int, TrainInstruction]
    model: SentModel
    until: Until
    wanted: int
    intermediate: IntermediateRound | None


class Run:
    """State of a run after its last finished round. `strategies.run_round` continues it.

    Attributes
    ----------
    parameters, buffers : float32 (N,) and (B,), the global model
    completed : rounds that were finished before this process continued the run
    ended : True after the last round
    record : record of the current round
    started_s : start of the current round by this process's clock
    """

    def __init__(self, method: SelectionMethod[Any]) -> None:
        self.method, self.context = method, method.context
        context, needs = method.context, method.needs(method.config)
        answer_s = context.replies.round_deadline_s if context.links.measured else 0.0
        self.clients = ConnectedClients(context.run.clients, context.enrolment, answer_s=answer_s)
        self.prober = ClientProber(self.clients, method.roster, needs, context)
        self.participation = ISP(context) if context.participation.searches else Participation(context)
        self.server = ServerState(context)
        reports = needs.reports | self.server.solver.reports
        estimated = () if self.server.estimates is None else self.server.estimates
        self.instructions = InstructionBuilder(context, method.roster, reports, estimated)
        self.collector = ReplyCollector(context, method.roster, reports, self.server.solver.payloads)
        self.rounds = RoundCount(method)
        self.parameters, self.buffers = context.initial, context.buffers
        self.best = BestModel(context.initial, context.buffers)
        self.completed, self.ended = 0, False
        self.record, self.started_s = RoundRecord(0), 0.0

    def end(self) -> None:
        """Write the summary and the models."""
        self.ended, best = True, (self.best.parameters, self.best.buffers)
        self.context.recorder.finish((self.parameters, self.buffers), best, self.method.roster.selections)

    def checkpoint(self) -> None:
        """Save the run after the last finished round."""
        self.context.recorder.checkpoint(self.snapshot())
        self.instructions.last_checkpoint = self.record.round

    def snapshot(self) -> Arrays:
        """Checkpoint of the run after its last finished round, as named arrays."""
        own = {"round": np.array(self.record.round), "key": np.array(self.instructions.key)}
        return own | {"parameters": self.parameters, "buffers": self.buffers} | gather(self._parts())

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load what `snapshot` returned. Raises ConfigError if it is from a different run."""
        self.parameters = matching(arrays, "parameters", self.parameters)
        self.buffers = matching(arrays, "buffers", self.buffers)
        self.completed = self.instructions.last_checkpoint = int(matching(arrays, "round", np.array(0)))
        self.instructions.key = str(matching(arrays, "key", np.array(self.instructions.key)))
        scatter(arrays, self._parts())

    def _parts(self) -> dict[str, Stateful]:
        return {
            "roster": self.method.roster,
            "best": self.best,
            "server": self.server,
            "policy": self.participation,
            "enrolment": self.clients.enrolment,
            "probes": self.prober.reported_values,
            "replies": self.collector.reported_values,
            "links": self.context.links,
            "method": self.method,
        }


class RunningMethod(SelectionMethod[ConfigT]):
    """Selection method with its run.

    Attributes
    ----------
    run : the run, which each round changes
    """

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self.run = Run(self)
