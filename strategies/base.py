"""The round, written once: enrol, probe, select, instruct; then decode, weigh, aggregate, step, absorb.

A selection method is a final subclass of `SelectionStrategy` that says what it `needs`, `select`s (pure: no state
changes) and `absorb`s what came back (the one place where its state changes).
"""

import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fedsel_app import wire
from fedsel_app.clock import Work
from fedsel_app.config import ConfigError, Settings
from fedsel_app.seeds import Purpose, stream
from strategies import exchange
from strategies.budget import client_fractions, link_caps, round_fraction
from strategies.calibration import calibrated
from strategies.roster import Floats, Needs, Outcome, Roster, Round, Selection
from strategies.server_optimizer import ServerOptimizer, aggregation_weights
from strategies.setup import Setup

LOGGER = logging.getLogger("fedsel")


class SelectionStrategy(Strategy, ABC):
    """Flower strategy of one selection method."""

    name: ClassVar[str]
    paper: ClassVar[str]
    Config: ClassVar[type[Settings]]

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.roster = Roster(setup.run.clients)
        self._needs = self.needs(setup.method)
        self._clients = exchange.Clients(setup.run.clients, setup.run.connect_timeout_s)
        self._optimizer = ServerOptimizer(setup.initial.size, setup.server)
        self._parameters = setup.initial
        self._buffers = setup.buffers
        self._plan: _Plan | None = None
        self._row: dict[str, Any] = {}
        self._started_s = time.perf_counter()

    @classmethod
    @abstractmethod
    def needs(cls, config: Settings) -> Needs:
        """What the method must know before it selects, under its settings."""

    @abstractmethod
    def select(self, roster: Roster, now: Round, count: int, rng: np.random.Generator) -> Selection:
        """Choose `count` of the available clients. Pure: neither `roster` nor the method changes."""

    def absorb(self, outcome: Outcome) -> None:
        """Learn from a round."""

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
        self._enrol(client_manager, server_round)
        probe_bytes = self._observe(server_round, parameters)
        available = self.roster.ids
        if not available.size:
            LOGGER.warning("Round %d: no client is connected; the model stays as it is.", server_round)
            return []
        count = min(self.setup.run.cohort, available.size)
        selection = self.select(self.roster, now, count, stream(self.setup.run.seed, Purpose.SELECT, server_round))
        theta, fractions = self._fractions(selection, now)
        self._plan = _Plan(now, selection, fractions, exchange.model_bytes(parameters), probe_bytes)
        rate = self.setup.training.learning_rate(server_round, now.total)
        rates = np.full(selection.clients.size, rate) if selection.learning_rates is None else selection.learning_rates
        warmup = server_round <= self.setup.budget.kept_warmup_rounds
        instructions: list[tuple[ClientProxy, FitIns]] = []
        for client, fraction, lr in zip(selection.clients.tolist(), fractions.tolist(), rates.tolist(), strict=True):
            config: dict[str, Scalar] = {
                "task": "train",
                "round": server_round,
                "lr": lr,
                "kept-fraction": fraction,
                "residual-decay": self.setup.compression.beta(theta),
                "curvature": not warmup,
            }
            instructions.append((self._clients.proxies[client], FitIns(parameters, config)))
        self._row["kept_fraction"] = theta
        return instructions

    def _enrol(self, client_manager: ClientManager, server_round: int) -> None:
        ask: dict[str, Scalar] = {"label-counts": self._needs.label_counts}
        for enrolled in self._clients.refresh(client_manager, ask, wait=server_round == 1):
            client, properties = enrolled.client, enrolled.properties
            self.roster.examples[client] = properties["examples"]
            self.roster.local_steps[client] = properties["steps"]
            self.setup.recorder.client({"client": client, "examples": properties["examples"]})
        self.roster.available[:] = False
        self.roster.available[list(self._clients.proxies)] = True

    def _observe(self, server_round: int, parameters: Parameters) -> int:
        """Measure losses where they are needed, and read the links. Returns the probe's bytes, both ways."""
        probe_bytes = 0
        self.roster.losses[:] = np.nan
        if self._needs.loss_probe or self.setup.links.needs_losses:
            config: dict[str, Scalar] = {
                "task": "probe",
                "round": server_round,
                "batches": self.setup.run.probe_batches,
            }
            for client, answer in self._clients.evaluate(self.roster.ids.tolist(), parameters, config).items():
                if isinstance(answer, Exception):
                    LOGGER.warning("Round %d: client %d failed its loss probe: %s", server_round, client, answer)
                    self.roster.available[client] = False
                else:
                    self.roster.losses[client] = answer.loss
        if self._needs.loss_probe:
            probe_bytes = self.roster.ids.size * (exchange.model_bytes(parameters) + exchange.SCALAR_BYTES)
        uplinks, step_s = self.setup.links.observe(server_round, self.roster.losses)
        self.roster.uplink_bits_per_s[:], self.roster.step_s[:] = uplinks, step_s
        if self._needs.links and np.isnan(uplinks[self.roster.ids]).any():
            raise ConfigError(f"The strategy {self.name} needs each client's link; set 'links' to simulated.")
        return probe_bytes

    def _fractions(self, selection: Selection, now: Round) -> tuple[float, Floats]:
        """The round's kept fraction and each selected client's."""
        chosen = selection.clients
        if self.setup.compression.compressor == "none":
            return 1.0, np.ones(chosen.size)
        theta = round_fraction(now, self.setup.budget)
        if selection.kept_fractions is not None:
            return theta, selection.kept_fractions
        links = self.setup.links
        caps = link_caps(
            self.roster.uplink_bits_per_s[chosen],
            links.mean_uplink_bits_per_s,
            links.mean_step_s * float(self.roster.local_steps[chosen].mean()),
            self._parameters.size,
            self.setup.budget,
        )
        return theta, client_fractions(selection.scores, theta, caps, now, self.setup.budget)

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
        replies = dict(sorted((self._clients.client(proxy), result) for proxy, result in results))
        updates: dict[int, wire.Update] = {}
        wire_bytes: dict[int, int] = {}
        reasons = [str(failure) for failure in failures if isinstance(failure, BaseException)]
        failed = []
        for client in selection.clients.tolist():
            try:
                if client not in replies:
                    raise wire.WireError("no reply")
                updates[client], wire_bytes[client] = exchange.decode(
                    replies[client], client, server_round, self._parameters.size
                )
            except wire.WireError as error:
                failed.append({"client": client, "reason": str(error)})
                LOGGER.warning("Round %d: client %d is left out: %s", server_round, client, error)
        for reason in reasons:
            LOGGER.warning("Round %d: a client failed: %s", server_round, reason)

        came = np.array(sorted(updates), np.int64)
        place = np.searchsorted(selection.clients, came)
        losses = np.array([float(replies[client].metrics["loss"]) for client in came.tolist()])
        steps = np.array([int(replies[client].metrics["steps"]) for client in came.tolist()], np.int64)
        self.roster.selections[selection.clients] += 1
        self.roster.last_selected[selection.clients] = server_round
        self.roster.fit_losses[came] = losses
        failed_ids = np.array([entry["client"] for entry in failed], np.int64)
        self.roster.failures[failed_ids] += 1

        weights = aggregation_weights(
            self.setup.server.weighting,
            selection.scores[place],
            self.roster.examples[came].astype(np.float64),
            None if selection.weights is None else selection.weights[place],
        )
        aggregate = None
        calibration_bytes = 0
        if came.size:
            aggregate = np.zeros(self._parameters.size)
            for client, weight in zip(came.tolist(), weights.tolist(), strict=True):
                updates[client].add_to(aggregate, weight)
            self._parameters = self._optimizer.step(self._parameters, aggregate)
            self._buffers, calibration_bytes = calibrated(
                self._clients, came, self._parameters, self._buffers, server_round, self.setup.server
            )
        else:
            LOGGER.warning("Round %d: nothing usable came back; the model stays as it is.", server_round)
        kept = tuple(updates[client] for client in came.tolist())
        self.absorb(Outcome(plan.now, came, kept, aggregate, losses, failed_ids))

        paper_bytes = np.array([wire.paper_bits(update) // 8 for update in kept], np.int64)
        sent_bytes = np.array([wire_bytes[client] for client in came.tolist()], np.int64)
        work = Work(
            self.roster.uplink_bits_per_s[came],
            self.roster.step_s[came],
            steps,
            sent_bytes,
            paper_bytes,
            self.roster.step_s[self.roster.ids],
            self.setup.run.probe_batches / 3.0 if self._needs.loss_probe else 0.0,
        )
        wall_s = time.perf_counter() - self._started_s
        self._row |= {
            "selected": selection.clients.tolist(),
            "kept_fractions": plan.fractions.tolist(),
            "scores": selection.scores.tolist(),
            "components": {name: values.tolist() for name, values in selection.components.items()},
            "probe_losses": self.roster.losses[selection.clients].tolist(),
            "aggregated": came.tolist(),
            "weights": weights.tolist(),
            "fit_losses": losses.tolist(),
            "failures": failed,
            "round_s": self.setup.links.round_seconds(work, wall_s),
            "uplink_bytes": int(sent_bytes.sum()),
            "paper_uplink_bytes": int(paper_bytes.sum()),
            "downlink_bytes": plan.model_bytes * selection.clients.size,
            "probe_bytes": plan.probe_bytes,
            "calibration_bytes": calibration_bytes,
            "exchanges": int(came.size),
        }
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
        if not self.setup.run.client_eval or "accuracy" not in self._row:
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
        rows = sorted((self._clients.client(proxy), float(result.metrics["accuracy"])) for proxy, result in results)
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


@dataclass(frozen=True)
class _Plan:
    """What a round was configured to do."""

    now: Round
    selection: Selection
    fractions: Floats
    model_bytes: int
    probe_bytes: int
