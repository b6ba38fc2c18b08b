"""What a round learns before it selects: who is there, what their losses are, and what their links can do."""

import logging

import numpy as np
from flwr.common import Parameters, Scalar
from flwr.server.client_manager import ClientManager

from fedsel_app.clock import FORWARD_STEPS
from fedsel_app.config import ConfigError
from strategies import exchange, untrusted
from strategies.plan import Probe
from strategies.roster import Ints, Needs, Roster, Round
from strategies.setup import Setup

LOGGER = logging.getLogger("fedsel")


class Observer:
    """Fills the roster by asking the clients; what a method may not know stays NaN there."""

    def __init__(self, clients: exchange.Clients, roster: Roster, needs: Needs, setup: Setup) -> None:
        self._clients, self._roster, self._needs, self._setup = clients, roster, needs, setup

    def enrol(self, manager: ClientManager, now: Round, *, wait: bool) -> int:
        """Who is connected; with `wait`, all K must be. Returns the bytes of label counts of those not known yet."""
        roster, needs, setup = self._roster, self._needs, self._setup
        if needs.label_counts and not roster.label_counts.size:
            roster.label_counts = np.zeros((setup.run.clients, setup.classes), np.int64)
        new = 0
        for enrolled in self._clients.refresh(manager, needs.label_counts, wait=wait):
            client, properties = enrolled.client, enrolled.properties
            if not roster.examples[client]:
                new += 1
                setup.recorder.client({"client": client, "examples": properties["examples"], "enrolled": now.number})
            roster.examples[client] = properties["examples"]
            roster.local_steps[client] = properties["steps"]
            if needs.label_counts:
                try:
                    sent = properties.get("label-counts", b"")
                    roster.label_counts[client] = untrusted.decode_counts(sent, client, setup.classes)
                except ConfigError as error:
                    if wait:
                        raise
                    LOGGER.warning("Round %d: %s What it has counts as nothing.", now.number, error)
        roster.available[:] = False
        roster.available[list(self._clients.proxies)] = True
        return new * setup.classes * exchange.SCALAR_BYTES if needs.label_counts else 0

    def measure(self, now: Round, probed: Ints, parameters: Parameters, told_bytes: int) -> Probe:
        """The losses of the `probed`, and everybody's links. A client that fails its probe sits the round out."""
        roster, needs, links, run = self._roster, self._needs, self._setup.links, self._setup.run
        roster.losses[:] = np.nan
        failures: list[dict[str, int | str]] = []
        batches = run.probe_batches if needs.probe_batches is None else needs.probe_batches
        # The stress test's links follow the losses: the simulator then measures them all, at nobody's charge.
        measured = roster.ids if links.needs_losses else probed
        task: dict[str, Scalar] = {"task": "probe", "round": now.number, "batches": batches}
        for client, answer in self._clients.evaluate(measured.tolist(), parameters, task).items():
            try:
                roster.losses[client] = untrusted.sound_loss(answer)
            except untrusted.WireError as error:
                LOGGER.warning("Round %d: client %d failed its loss probe: %s", now.number, client, error)
                failures.append({"client": client, "reason": f"loss probe: {error}"})
                roster.available[client] = False
        roster.uplink_bits_per_s[:], roster.step_s[:] = links.observe(now.number, roster.losses)
        if needs.links and np.isnan(roster.uplink_bits_per_s[roster.ids]).any():
            raise ConfigError(f"The strategy {run.strategy} needs each client's link; set 'links' to simulated.")
        roster.losses[np.setdiff1d(measured, probed)] = np.nan
        forward = batches or np.ceil(roster.examples[probed] / self._setup.training.batch_size)
        return Probe(
            bytes=told_bytes + probed.size * (exchange.model_bytes(parameters) + exchange.SCALAR_BYTES),
            seconds=roster.step_s[probed] * forward * FORWARD_STEPS,
            failures=failures,
        )
