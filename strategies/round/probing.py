"""Probing: before a round selects, it enrols new clients, measures losses and metrics, and observes links."""

import gc
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedsel_app.messages.answers import FORWARD_STEPS, sent_bounds
from fedsel_app.messages.instructions import ProbeInstruction
from fedsel_app.network.links import Work
from fedsel_app.records.schema import EnrolmentRecord, Failure
from strategies.roster import METRIC, Floats, Ints, Needs, Roster, RoundInfo
from strategies.round.clients import SCALAR_BYTES, ConnectedClients
from strategies.round.federation import Federation, Reply, SentModel, Until, rounded_model
from strategies.round.replies.enrolment import take_examples, take_label_counts
from strategies.round.replies.values import PROBE, LastReported, read_probes
from strategies.run_context import RunContext

PATIENCE = 3.0
"""Longest wait of a server that does not wait for its cohort for a probe, in multiples of the last median."""
SHORTEST_WAIT_S = 1.0
"""Lower bound of this wait."""
DOUBLINGS = 4
"""Such a server does not ask a client for 1 round after a missed probe. For each further one in a row this doubles, so
many times at most."""


@dataclass(frozen=True)
class Probe:
    """Loss probe of a round.

    Attributes
    ----------
    columns : array of the roster -> float64 (K,), the probed clients' losses and metrics; NaN for all others
    bytes : in both directions, with the label counts of clients that enrolled in this round
    duration_s : float64 (c,), of each probed client
    failures : clients that did not answer, with the reason
    """

    columns: Mapping[str, Floats]
    bytes: int
    duration_s: Floats
    failures: list[Failure]

    def write(self, roster: Roster, clients: Ints) -> None:
        """Give the roster new columns with the values of only these clients; NaN for all others."""
        for name, values in self.columns.items():
            column = np.full(values.size, np.nan)
            column[clients] = values[clients]
            setattr(roster, name, column)


def evaluation(roster: Roster, clients: Ints, steps_s: Floats, model: SentModel, numbers: int = 1) -> Work:
    """Work of clients that evaluate a model and send so many numbers, for the clock.

    As local steps it would take them `steps_s` seconds.
    """
    answer_bytes = np.full(clients.size, SCALAR_BYTES * numbers)
    links = roster.downlink_bits_per_s[clients], roster.uplink_bits_per_s[clients]
    return Work(clients, steps_s * FORWARD_STEPS, *links, model.nbytes, answer_bytes, answer_bytes)


class ClientProber:
    """Client prober: asks the clients and fills the roster. Values that the method may not know stay NaN."""

    def __init__(self, clients: ConnectedClients, roster: Roster, needs: Needs, context: RunContext) -> None:
        self._clients, self._roster, self._needs, self._context = clients, roster, needs, context
        self._typical_s = 0.0
        """Median seconds of the last answers to a probe; 0 before the first."""
        self._missed, self._rests_until = np.zeros((2, context.run.clients), np.int64)
        """Probes in a row that a client missed, and the last round in which it is not asked for this reason."""
        self._nodes: dict[int, str] = {}
        self._connected = np.zeros(context.run.clients, np.bool_)
        """True for the clients of these nodes."""
        unbounded = [name for name in needs.metrics if sent_bounds(name)[1] > 1.0]
        self._clipped = {"losses": PROBE} | {METRIC + name: name for name in unbounded}
        """Columns whose values have no bounds of their own -> kind of the reported values."""
        clip = context.reported_values.loss_clip
        self.reported_values = LastReported(context.run.clients, self._clipped.values(), clip)

    def _until(self) -> Until | None:
        """End of the wait for a probe, if a deployed server does not wait for its cohort: a few times the last median.

        The first probe has the time of an enrolment.
        """
        context = self._context
        if not context.links.measured or context.waiting.waiting == "synchronous":
            return None
        usual_s = max(PATIENCE * self._typical_s, SHORTEST_WAIT_S)
        return Until(deadline_s=usual_s if self._typical_s else context.enrolment.enrol_timeout_s)

    def enrol(self, federation: Federation, number: int, *, wait: bool) -> int:
        """Enrol the connected clients in round `number`; with `wait`, all K. Returns the bytes of new label counts.

        Raises ConfigError with `wait`, if label counts are needed and no client sends them; also as
        `ConnectedClients.enrol`.
        """
        roster, needs, context = self._roster, self._needs, self._context
        gc.disable()  # it would search the answers of many clients for cycles, again and again
        try:
            answers = self._clients.enrol(federation, number, needs.label_counts, wait=wait)
            new: dict[int, EnrolmentRecord] = {}
            for answer in answers:
                if not roster.examples[answer.client]:
                    new.setdefault(answer.client, EnrolmentRecord(answer.client, number, answer.examples))
            take_examples(answers, roster, number, context)
            if needs.label_counts:
                unsound = take_label_counts(answers, roster, number, 0 if context.classes_told else context.classes)
                if wait and unsound and len(unsound) == len(answers):
                    raise unsound[0]
            context.recorder.clients([*new.values(), *self._clients.enrolment.identity_conflicts])
        finally:
            gc.enable()
        self._clients.enrolment.identity_conflicts.clear()
        if self._clients.nodes is not self._nodes:
            self._nodes, self._connected[:] = self._clients.nodes, False
            self._connected[list(self._nodes)] = True
        roster.available[:] = self._connected & (self._rests_until < number)
        return len(new) * roster.label_counts.shape[1] * SCALAR_BYTES if needs.label_counts else 0

    def measure(self, round_info: RoundInfo, probed: Ints, model: SentModel, label_count_bytes: int) -> Probe:
        """Measure the losses and metrics of the `probed`, and observe every link.

        `label_count_bytes` are part of the probe's bytes.

        A client that fails its probe is not available in this round.
        """
        roster, needs, context, links = self._roster, self._needs, self._context, self._context.links
        batches = context.evaluation.probe_batches if needs.probe_batches is None else needs.probe_batches
        # Links of the stress test depend on the losses, so the simulator measures all losses, without counting their
        # bytes.
        measured = roster.ids if links.needs_losses else probed
        asked = ",".join(needs.metrics)
        instruction = ProbeInstruction(round_info.number, batches, needs.probe_test_part, metrics=asked)
        model = rounded_model(model, context.evaluation.probe_bits)
        until = self._until()
        answers = self._clients.ask(dict.fromkeys(measured.tolist(), instruction), model, until)
        if arrived_s := [answer.arrived_s for answer in answers.values() if isinstance(answer, Reply)]:
            self._typical_s = float(np.median(arrived_s))
        answered, failures = read_probes(answers, round_info.number, needs.metrics)
        everybody = np.arange(context.run.clients)
        columns = {name: np.full(everybody.size, np.nan) for name in ("losses", *map(METRIC.__add__, needs.metrics))}
        for client, answer in answered.items():
            columns["losses"][client] = answer.loss
            for name, value in answer.scores.items():
                columns[METRIC + name][client] = value
        silent = [failure["client"] for failure in failures]
        roster.available[silent] = False
        if until is not None:
            self._missed[list(answered)] = 0
            self._missed[silent] += 1
            rests = 2 ** np.minimum(self._missed[silent] - 1, DOUBLINGS)
            self._rests_until[silent] = round_info.number + rests
        for name, kind in self._clipped.items():
            columns[name] = self.reported_values.bounded(kind, everybody, columns[name])
        roster.uplink_bits_per_s[:], roster.step_s[:] = links.observe(round_info.number, columns["losses"])
        roster.downlink_bits_per_s[:] = links.downlinks(round_info.number)
        for column in columns.values():
            column[np.setdiff1d(measured, probed)] = np.nan
        examples = roster.examples[probed].astype(np.float64)
        if needs.probe_test_part:
            examples *= context.partition.holdout_fraction / (1.0 - context.partition.holdout_fraction)
        forward = batches or np.ceil(examples / context.training.batch_size)
        return Probe(
            columns=columns,
            bytes=label_count_bytes + probed.size * (model.nbytes + SCALAR_BYTES * needs.probed_numbers),
            duration_s=links.probe_s(
                evaluation(roster, probed, roster.step_s[probed] * forward, model, needs.probed_numbers)
            ),
            failures=failures,
        )
