"""The round, written once: enrol, probe, select, instruct; then decode, weigh, aggregate, step, absorb.

A selection method is a final subclass of `SelectionStrategy` that says what it `needs`, `select`s (pure: no state
changes) and `absorb`s what came back (the one place where its state changes).
"""

import logging
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from numpy.typing import NDArray

from fedsel_app.clock import FORWARD_STEPS
from fedsel_app.config import ConfigError, Settings
from fedsel_app.seeds import Purpose, stream
from strategies import exchange
from strategies.budget import cohort_fractions, round_fraction
from strategies.calibration import calibrated
from strategies.ledger import round_row, with_costs
from strategies.plan import Plan, Probe
from strategies.policy import make_policy
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, Round, Selection
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
        self._clients = exchange.Clients(setup.run.clients, setup.run.connect_timeout_s)
        self._server = ServerState(setup, self._needs.reports)
        self._policy = make_policy(setup)
        self._parameters = setup.initial
        self._buffers = setup.buffers
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
        self._row = {"round": server_round, "selected": [], "failures": []}
        now = Round(server_round, self.setup.run.rounds)
        told_bytes = self._enrol(client_manager, server_round)
        sent, searching = self._server.solver.instruct(parameters), self._policy.due(now)
        trial = self._trial(now, sent)
        count = min(self._policy.count(trial), self.roster.ids.size)
        probe = self._observe(now, count, parameters, told_bytes, everybody=searching)
        count = min(self._policy.settle(trial), self.roster.ids.size)
        self._row["cohort"] = count
        if not count:
            LOGGER.warning("Round %d: no client is connected; the model stays as it is.", server_round)
            return []
        if searching and self._needs.loss_probe and count < self.roster.ids.size:
            candidates = self.candidates(self.roster, now, count, self._stream(Purpose.CANDIDATES, now))
            self.roster.losses[:] = known_to(self.roster, self.roster.ids, candidates).losses
        selection = self.select(self.roster, now, count, self._stream(Purpose.SELECT, now))
        instructions, theta, fractions = self._instruct(selection, now, sent)
        self._plan = Plan(now, selection, fractions, exchange.model_bytes(sent), probe, trial)
        self._row["kept_fraction"] = theta
        return instructions

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
            lambda chosen: self._instruct(chosen, now, sent, keep_state=False)[0],
            self._clients,
            self._server,
            self._parameters,
            self._buffers,
        )

    def _instruct(
        self, selection: Selection, now: Round, sent: Parameters, *, keep_state: bool = True
    ) -> tuple[list[tuple[ClientProxy, FitIns]], float, Floats]:
        """What each of the selected is told (without `keep_state` it forgets it), and the kept fractions."""
        theta, fractions = self._fractions(selection, now)
        estimates = self._server.estimates
        rate = self.setup.training.learning_rate(now.number, now.total)
        rates = np.full(selection.clients.size, rate) if selection.learning_rates is None else selection.learning_rates
        instructions: list[tuple[ClientProxy, FitIns]] = []
        for client, fraction, lr in zip(selection.clients.tolist(), fractions.tolist(), rates.tolist(), strict=True):
            config: dict[str, Scalar] = {
                "task": "train",
                "round": now.number,
                "lr": lr,
                "kept-fraction": fraction,
                "residual-decay": self.setup.compression.beta(theta),
                "curvature": now.number > self.setup.budget.kept_warmup_rounds,
                "reports": ",".join(sorted(self._server.reports)),
            }
            if estimates is not None:
                config["estimated"] = client in estimates
            if not keep_state:
                config["keep-state"] = False
            instructions.append((self._clients.proxies[client], FitIns(sent, config)))
        return instructions, theta, fractions

    def _enrol(self, client_manager: ClientManager, server_round: int) -> int:
        """Who is there. Returns the bytes of the label counts that the new ones sent."""
        classes = self.setup.classes
        if self._needs.label_counts and not self.roster.label_counts.size:
            self.roster.label_counts = np.zeros((self.setup.run.clients, classes), np.int64)
        enrolments = self._clients.refresh(client_manager, self._needs.label_counts, wait=server_round == 1)
        for enrolled in enrolments:
            client, properties = enrolled.client, enrolled.properties
            self.roster.examples[client] = properties["examples"]
            self.roster.local_steps[client] = properties["steps"]
            if self._needs.label_counts:
                self.roster.label_counts[client] = exchange.decode_counts(properties["label-counts"], client, classes)
            self.setup.recorder.client({"client": client, "examples": properties["examples"]})
        self.roster.available[:] = False
        self.roster.available[list(self._clients.proxies)] = True
        return len(enrolments) * classes * exchange.SCALAR_BYTES if self._needs.label_counts else 0

    def _observe(self, now: Round, count: int, parameters: Parameters, told_bytes: int, *, everybody: bool) -> Probe:
        """Measure the candidates' (or everybody's) losses where they are needed, and read the links."""
        roster, needs, links = self.roster, self._needs, self.setup.links
        roster.losses[:] = np.nan
        probed = np.zeros(0, np.int64)
        if needs.loss_probe:
            rng = self._stream(Purpose.CANDIDATES, now)
            probed = roster.ids if everybody else self.candidates(roster, now, count, rng)
        batches = self.setup.run.probe_batches if needs.probe_batches is None else needs.probe_batches
        # The stress test's links follow the losses: the simulator then measures them all, at nobody's charge.
        measured = roster.ids if links.needs_losses else probed
        task: dict[str, Scalar] = {"task": "probe", "round": now.number, "batches": batches}
        for client, answer in self._clients.evaluate(measured.tolist(), parameters, task).items():
            if isinstance(answer, Exception):
                LOGGER.warning("Round %d: client %d failed its loss probe: %s", now.number, client, answer)
                roster.available[client] = False
            else:
                roster.losses[client] = answer.loss
        roster.uplink_bits_per_s[:], roster.step_s[:] = links.observe(now.number, roster.losses)
        if needs.links and np.isnan(roster.uplink_bits_per_s[roster.ids]).any():
            raise ConfigError(f"The strategy {self.name} needs each client's link; set 'links' to simulated.")
        roster.losses[np.setdiff1d(measured, probed)] = np.nan
        forward = batches or np.ceil(roster.examples[probed] / self.setup.training.batch_size)
        return Probe(
            bytes=told_bytes + probed.size * (exchange.model_bytes(parameters) + exchange.SCALAR_BYTES),
            seconds=roster.step_s[probed] * forward * FORWARD_STEPS,
        )

    def _fractions(self, selection: Selection, now: Round) -> tuple[float, Floats]:
        """The round's kept fraction and each selected client's."""
        if not self.setup.compression.sparsifies:
            return 1.0, np.ones(selection.clients.size)
        if selection.kept_fractions is not None:
            return round_fraction(now, self.setup.budget), selection.kept_fractions
        links = self.setup.links
        means = links.mean_uplink_bits_per_s, links.mean_step_s
        return cohort_fractions(selection, self.roster, means, self._parameters.size, now, self.setup.budget)

    # The round, second half -----------------------------------------------------------------------------------

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Decode, check, weigh, aggregate, step, and let the method absorb what came back."""
        plan = self._plan
        if plan is None or plan.now.number != server_round:
            raise RuntimeError(f"Round {server_round} was aggregated without having been configured.")
        selection = plan.selection
        for failure in failures:
            LOGGER.warning("Round %d: a client failed: %s", server_round, failure)
        answered = {self._clients.client(proxy): result for proxy, result in results}
        replies = self._server.collect(answered, selection.clients, server_round)
        self._policy.absorb(plan.trial, replies)
        came = replies.clients
        self.roster.selections[selection.clients] += 1
        self.roster.last_selected[selection.clients] = server_round
        self.roster.fit_losses[came] = replies.losses
        self.roster.failures[replies.failed] += 1

        initial = self._parameters
        step = self._server.step(initial, selection, replies, self.roster.examples)
        self._parameters = step.parameters
        calibration_bytes = 0
        if came.size:
            self._buffers, calibration_bytes = calibrated(
                self._clients, came, self._parameters, self._buffers, server_round, self.setup.server
            )
        else:
            LOGGER.warning("Round %d: nothing usable came back; the model stays as it is.", server_round)
        self.absorb(
            Outcome(
                plan.now, initial, came, step.updates, step.aggregate, replies.losses, replies.reports, replies.failed
            )
        )
        wall_s = time.perf_counter() - self._started_s
        row = round_row(plan, replies, step.weights, self.roster, self.setup.links, calibration_bytes, wall_s)
        self._row |= with_costs(row, plan.trial)
        return exchange.pack(self._parameters, self._buffers), {}

    # Evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """The global model on the server's test set, every `eval-every` rounds and in the last."""
        run = self.setup.run
        if server_round == 0 or (server_round % run.eval_every and server_round != run.rounds):
            return None
        arrays = parameters_to_ndarrays(parameters)
        buffers = arrays[1] if len(arrays) > 1 else np.zeros(0, np.float32)
        result = self.setup.evaluate(arrays[0], buffers)
        self._row |= {"accuracy": result.accuracy, "loss": result.loss}
        return result.loss, {"accuracy": result.accuracy}

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """With `client-eval`, every client's own test part; else this ends the round."""
        if not self.setup.run.client_eval or "accuracy" not in self._row or not self._clients.proxies:
            self._close_round()
            return []
        ins = EvaluateIns(parameters, {"task": "test", "round": server_round})
        return [(self._clients.proxies[client], ins) for client in sorted(self._clients.proxies)]

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Mean accuracy over the clients' own test parts, each client alike."""
        self._policy.observe(server_round + 1, exchange.mean_loss([result for _, result in results]))
        told = ((self._clients.client(proxy), result.metrics.get("accuracy")) for proxy, result in results)
        rows = sorted((client, accuracy) for client, accuracy in told if isinstance(accuracy, float))
        for client, accuracy in rows:
            self.setup.recorder.client({"client": client, "round": server_round, "accuracy": accuracy})
        if rows:
            self._row["client_accuracy"] = float(np.mean([accuracy for _, accuracy in rows]))
        self._close_round()
        return None, {}

    def _close_round(self) -> None:
        self._row["wall_s"] = time.perf_counter() - self._started_s
        self.setup.recorder.round(self._row)
        if self._row["round"] == self.setup.run.rounds:
            self.setup.recorder.finish(self._parameters, self._buffers, self.roster)
