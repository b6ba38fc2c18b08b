"""The round, written once: enrol, probe, select, instruct; then decode, weigh, aggregate, step, absorb.

A selection method is a final subclass of `SelectionStrategy` that says what it `needs`, `select`s (pure: no state
changes) and `absorb`s what came back (the one place where its state changes).
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from numpy.typing import NDArray

from fedsel_app.config import Settings
from fedsel_app.seeds import Purpose, stream
from strategies import exchange
from strategies.calibration import calibrated
from strategies.checkpoint import Arrays, Best, Stateful, gather, scatter, taken
from strategies.instructions import Instructor
from strategies.ledger import round_row, with_costs
from strategies.observation import Observer
from strategies.plan import Plan
from strategies.policy import make_policy
from strategies.race import Race, counted, lost, told
from strategies.roster import Ints, Needs, Outcome, Roster, Round, Selection
from strategies.server_state import ServerState
from strategies.setup import Setup
from strategies.trial import Trial, known_to

LOGGER = logging.getLogger("fedsel")


class SelectionStrategy(Strategy, ABC):
    """Flower strategy of one selection method. What a method does not promise it says: see `strategies.contract`."""

    name: ClassVar[str]
    paper: ClassVar[str]
    Config: ClassVar[type[Settings]]
    exact_cohort: ClassVar[bool] = True
    explores: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.roster = Roster(setup.run.clients)
        self._needs = self.needs(setup.method)
        self._clients = exchange.Clients(
            setup.run.clients,
            setup.run.connect_timeout_s,
            setup.pool,
            answer_s=setup.run.round_deadline_s if setup.links.measured else 0.0,
        )
        self._observer = Observer(self._clients, self.roster, self._needs, setup)
        self._server = ServerState(setup, self._needs.reports)
        self._instructor = Instructor(setup, self.roster, self._clients, self._server)
        self._policy = make_policy(setup)
        self._parameters = setup.initial
        self._buffers = setup.buffers
        self._best = Best(setup.initial, setup.buffers)
        self.completed = 0
        """Rounds before this process took the run up."""
        self._ended = False
        self._plan: Plan | None = None
        self._row: dict[str, Any] = {}
        self._started_s = time.perf_counter()

    @classmethod
    @abstractmethod
    def needs(cls, config: Settings) -> Needs:
        """What the method must know before it selects, under its settings."""

    @abstractmethod
    def select(self, roster: Roster, now: Round, count: int, rng: np.random.Generator) -> Selection:
        """Choose `count` of the available clients. Pure: neither `roster` nor the method changes."""

    def candidates(self, roster: Roster, now: Round, count: int, rng: np.random.Generator) -> Ints:
        """Whose loss is probed before `count` clients are selected, where the method needs it: everybody's. Pure."""
        return roster.ids

    def absorb(self, outcome: Outcome) -> None:
        """Learn from a round: the one place where a method's state changes."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The method's state as named arrays: what `load_state` needs to go on identically."""
        return {}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up a state that `state` returned."""

    # The round, first half ------------------------------------------------------------------------------------

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial global model, a function of the seed."""
        return exchange.pack(self._parameters, self._buffers)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Enrol, probe, select, and instruct the selected."""
        self._started_s = time.perf_counter()
        if self._ended:
            return []
        now = Round(self.completed + server_round, self.setup.run.rounds)
        self._row = {"round": now.number, "selected": [], "failures": []}
        told_bytes = self._observer.enrol(client_manager, now, wait=server_round == 1)
        sent, searching = self._server.solver.instruct(parameters), self._policy.due(now)
        trial = self._trial(now, sent)
        count = min(self._policy.count(trial), self.roster.ids.size)
        probe = self._observer.measure(now, self._probed(now, count, everybody=searching), parameters, told_bytes)
        count = min(self._policy.settle(trial), self.roster.ids.size)
        self._row |= {"cohort": count, "failures": probe.failures}
        if not count:
            LOGGER.warning("Round %d: no client is connected; the model stays as it is.", now.number)
            return []
        if searching and self._needs.loss_probe and count < self.roster.ids.size:
            candidates = self.candidates(self.roster, now, count, self._stream(Purpose.CANDIDATES, now))
            self.roster.losses[:] = known_to(self.roster, self.roster.ids, candidates).losses
        run = self.setup.run
        asked = told(count, run.over_selection, self.roster.ids.size)
        selection = self.select(self.roster, now, asked, self._stream(Purpose.SELECT, now))
        instructions, theta, fractions = self._instructor.instruct(selection, now, sent)
        wanted = count if asked > count else selection.clients.size
        race = Race(wanted, run.round_deadline_s)
        self._plan = Plan(now, selection, fractions, exchange.model_bytes(sent), probe, trial, wanted, race)
        self._row["kept_fraction"] = theta
        if not self.setup.links.measured:
            return instructions
        return [(race.enter(proxy, self._clients.client(proxy)), ins) for proxy, ins in instructions]

    def _stream(self, purpose: Purpose, now: Round) -> np.random.Generator:
        return stream(self.setup.run.seed, purpose, now.number)

    def _trial(self, now: Round, sent: Parameters) -> Trial:
        """What a participation policy may try out in this round."""
        return Trial(
            now,
            self.setup,
            self.roster,
            self.select,
            self.candidates if self._needs.loss_probe else None,
            lambda chosen: self._instructor.instruct(chosen, now, sent, keep_state=False)[0],
            self._clients,
            self._server,
            self._parameters,
            self._buffers,
        )

    def _probed(self, now: Round, count: int, *, everybody: bool) -> Ints:
        """Whose loss is measured before `count` clients are selected."""
        if not self._needs.loss_probe:
            return np.zeros(0, np.int64)
        if everybody:
            return self.roster.ids
        return self.candidates(self.roster, now, count, self._stream(Purpose.CANDIDATES, now))

    # The round, second half -----------------------------------------------------------------------------------

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Decode, check, weigh, aggregate, step, and let the method absorb what came back."""
        if self._ended:
            return None, {}
        plan, server_round = self._plan, self.completed + server_round
        if plan is None or plan.now.number != server_round:
            raise RuntimeError(f"Round {server_round} was aggregated without having been configured.")
        selection = plan.selection
        for failure in failures:
            LOGGER.warning("Round %d: a client failed: %s", server_round, failure)
        answered = exchange.once_each(
            ((self._clients.client(proxy), result) for proxy, result in results), server_round
        )
        for client in lost(selection.clients, server_round, self.setup.run):
            answered.pop(client, None)
        replies = self._server.collect(answered, selection.clients, server_round)
        work = replies.work(self.roster, np.zeros(0))
        finish_s = self.setup.links.finish_s(work, plan.race.arrivals(replies.clients))
        replies = counted(replies, finish_s, plan.wanted, self.setup.run)
        self._policy.absorb(plan.trial, replies)
        came = replies.clients
        self.roster.selections[selection.clients] += 1
        self.roster.last_selected[selection.clients] = server_round
        self.roster.last_returned[came] = server_round
        self.roster.fit_losses[came] = replies.losses
        self.roster.failures[replies.broken] += 1

        initial = self._parameters
        step = self._server.step(initial, selection, replies, self.roster.examples)
        self._parameters = step.parameters
        calibration_bytes = 0
        if came.size:
            self._buffers, calibration_bytes = calibrated(
                self._clients,
                came,
                self._parameters,
                self._buffers,
                server_round,
                self.setup.server,
                variances=self.setup.buffers > 0.0,
            )
        else:
            LOGGER.warning("Round %d: too little came back; the model stays as it is.", server_round)
        self.absorb(
            Outcome(
                plan.now, initial, came, step.updates, step.aggregate, replies.losses, replies.reports, replies.failed
            )
        )
        wall_s = time.perf_counter() - self._started_s
        row = round_row(plan, replies, step.weights, self.roster, self.setup.links, calibration_bytes, wall_s)
        self._row |= with_costs(row, plan.trial) | step.record
        return exchange.pack(self._parameters, self._buffers), {}

    # Evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """The global model on the server's test set, every `eval-every` rounds and in the last."""
        run, number = self.setup.run, self.completed + server_round
        if not server_round or self._ended or (number % run.eval_every and number != run.rounds):
            return None
        arrays = parameters_to_ndarrays(parameters)
        buffers = arrays[1] if len(arrays) > 1 else np.zeros(0, np.float32)
        result = self.setup.evaluate(arrays[0], buffers)
        self._row |= result.row()
        self._best.offer(result.accuracy, arrays[0], buffers)
        return result.loss, {"accuracy": result.accuracy}

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """With `client-eval`, every client's own test part; else this ends the round."""
        if self._ended:
            return []
        if not self.setup.run.client_eval or "loss" not in self._row or not self._clients.proxies:
            self._close_round()
            return []
        ins = EvaluateIns(parameters, {"task": "test", "round": self._row["round"]})
        return [(self._clients.proxies[client], ins) for client in sorted(self._clients.proxies)]

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Mean loss and accuracy over the clients' own test parts, each client alike."""
        server_round = self.completed + server_round
        self._policy.observe(server_round + 1, exchange.mean_loss([result for _, result in results]))
        told = sorted(
            (self._clients.client(proxy), result.loss, result.metrics.get("accuracy")) for proxy, result in results
        )
        rows = [(client, accuracy) for client, _, accuracy in told if isinstance(accuracy, float)]
        for client, accuracy in rows:
            self.setup.recorder.client({"client": client, "round": server_round, "accuracy": accuracy})
        if rows:
            self._row["client_accuracy"] = float(np.mean([accuracy for _, accuracy in rows]))
        if told:
            self._row["client_loss"] = float(np.mean([loss for _, loss, _ in told]))
        self._close_round()
        return None, {}

    def _close_round(self) -> None:
        row, run, recorder = self._row, self.setup.run, self.setup.recorder
        row["wall_s"] = time.perf_counter() - self._started_s
        recorder.round(row)
        reached = run.stop_at_target and row.get("accuracy", 0.0) >= run.target
        self._ended = reached or row["round"] == run.rounds
        if self._ended:
            recorder.finish((self._parameters, self._buffers), (self._best.parameters, self._best.buffers), self.roster)
        elif run.checkpoint_every and row["round"] % run.checkpoint_every == 0:
            recorder.checkpoint(self.snapshot())
            self._instructor.durable = row["round"]

    # Going on after an interruption -----------------------------------------------------------------------------

    def _parts(self) -> dict[str, Stateful]:
        own: dict[str, Stateful] = {"roster": self.roster, "best": self._best, "server": self._server}
        return own | {"policy": self._policy, "links": self.setup.links, "method": self}

    def snapshot(self) -> Arrays:
        """The run after its last finished round, as named arrays: all that `restore` needs to go on identically."""
        own = {"round": np.array(self._row["round"]), "key": np.array(self._instructor.key)}
        return own | {"parameters": self._parameters, "buffers": self._buffers} | gather(self._parts())

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `snapshot` returned. Raises ConfigError if it is not of such a run."""
        self._parameters = taken(arrays, "parameters", self._parameters)
        self._buffers = taken(arrays, "buffers", self._buffers)
        self.completed = self._instructor.durable = int(taken(arrays, "round", np.array(0)))
        self._instructor.key = str(taken(arrays, "key", np.array(self._instructor.key)))
        scatter(arrays, self._parts())
