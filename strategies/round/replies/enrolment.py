"""Enrolment: a partition id belongs to the node that enrolled it first.

A node is identified by the id that Flower gives to its SuperNode. A SuperNode with a key of its own keeps its id after
a restart. A SuperNode without a key gets a new id, so another node may take over a partition id when its owner is no
longer connected. With `node-keys` no other node may take it over. If several nodes report the same free partition id,
none of them gets it until only one is left, because the server cannot tell which one is honest.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, EnrolmentConfig
from fedsel_app.data.arrays import RESOLUTION
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.reported_values import one_line, winsorised
from fedsel_app.records.schema import IdentityConflict
from strategies.checkpoint import Arrays, matching
from strategies.roster import Roster
from strategies.round.federation import Reply
from strategies.run_context import EVERYBODY, Admission, RunContext

LOGGER = logging.getLogger("fedsel")
MOST_DOUBLINGS = 6
FAR = 10.0
"""Standard deviations between the means of two clients whose units differ."""
SAME_FACTOR = 0.5
"""Largest difference of the logarithms (base 10) of two factors that are about the same."""
SHARED = "its data are a part of the server's, and those of other clients are their own: give it a data-path of its own"


def assign(
    owners: Mapping[int, str], claims: Mapping[str, int], *, keys: bool
) -> tuple[dict[int, str], dict[str, str]]:
    """Assign partition ids to the nodes that are connected.

    Parameters
    ----------
    owners : partition id -> its owner so far, a node
    claims : connected node -> the partition id that it reports
    keys : True if no other node may take over a partition id

    Returns
    -------
    owners : partition id -> the node that owns it now, connected or not
    refused : node -> the reason why it does not own the partition id that it reports
    """
    now, refused = dict(owners), dict[str, str]()
    claimants: dict[int, list[str]] = {}
    for node, client in claims.items():
        claimants.setdefault(client, []).append(node)
    for client, nodes in sorted(claimants.items()):
        owner = owners.get(client)
        if owner in nodes:
            reason = f"it belongs to node {owner}"
        elif owner is not None and keys:
            reason = f"it belongs to node {owner} and its key, and that node is not connected"
        elif len(nodes) == 1:
            now[client] = nodes[0]
            continue
        else:
            reason = f"nodes {', '.join(sorted(nodes))} claim it at the same time; stop all of them except one"
        refused |= {node: reason for node in sorted(nodes) if node != owner}
    return now, refused


class Enrolment:
    """Enrolment of a run: the owner of each partition id, and the connected nodes that own none.

    Parameters
    ----------
    total : clients of the run, K
    admission : what the model requires of a client

    Attributes
    ----------
    client_of : node -> partition id, of every node that owns one
    identity_conflicts : nodes that were left out, were refused or took over a partition id, and are not recorded yet
    moments : sums over the training examples of all clients that sent them, float64 (1 + 2 C,); empty if none did
    """

    def __init__(self, total: int, config: EnrolmentConfig, admission: Admission = EVERYBODY) -> None:
        self._total, self._config, self._admission = total, config, admission
        self._owners: dict[int, str] = {}
        self._written: NDArray[np.str_] | None = None
        """The owners as `state` returns them."""
        self._answers: dict[str, EnrolAnswer] = {}
        """Answers of the nodes that claim a partition id but own none."""
        self._failures: dict[str, int] = {}
        self._again_s: dict[str, float] = {}
        """Time at which a node that failed to answer is asked again."""
        self._reasons: dict[str, str] = {}
        self.client_of: dict[str, int] = {}
        self.identity_conflicts: list[IdentityConflict] = []
        self.moments = np.zeros(0)

    def renew(self, connected: Collection[str]) -> None:
        """Forget all owners if none is connected: the run is simulated, or resumed with another SuperLink."""
        if not any(node in connected for node in self._owners.values()):
            self._owners.clear()
            self._written = None

    def forget(self, connected: Collection[str]) -> None:
        """Forget the nodes that own no partition id and are no longer connected."""
        for notes in (self._answers, self._failures, self._again_s, self._reasons):
            for node in [node for node in notes if node not in connected]:
                del notes[node]

    def due(self, now_s: float) -> bool:
        """True if it is time to ask a node again that failed."""
        return any(again_s <= now_s for again_s in self._again_s.values())

    def unheard(self, connected: Collection[str], now_s: float) -> list[str]:
        """The connected nodes whose identity must be asked now."""
        return [
            node
            for node in connected
            if node not in self.client_of and node not in self._answers and self._again_s.get(node, 0.0) <= now_s
        ]

    def hear(self, node: str, reply: Reply, server_round: int) -> None:
        """Read a node's answer. A node that is not a client of this run is left out and not asked again.

        So is a client that the model does not admit.
        """
        self._again_s.pop(node, None)
        try:
            answer = reply.enrolment or EnrolAnswer.from_properties(reply.metrics, self._total)
            self._admission.check(answer)
            if self.moments.size and not answer.own_data:
                raise ConfigError(SHARED)
            self._answers[node] = answer
        except ConfigError as error:
            claimed = reply.metrics.get("client") if reply.enrolment is None else reply.enrolment.client
            client = claimed if type(claimed) is int and 0 <= claimed < self._total else None
            self.leave_out(node, error, server_round, client)

    def leave_out(self, node: str, error: object, server_round: int, client: int | None = None) -> None:
        """Leave out a node, which is not asked again. It says that it is `client`; by default, it owns that id."""
        owned = self.client_of.pop(node, None)
        self._again_s[node] = math.inf
        reason = one_line(error).removesuffix(".")
        self._note(node, server_round, f"left out: {reason}", owned if client is None else client)

    def postpone(self, node: str, again_s: float) -> None:
        """Ask a node no earlier than at `again_s` on the monotonic clock."""
        self._again_s[node] = again_s

    def fail(self, node: str, error: object, server_round: int, now_s: float) -> None:
        """Leave out a node that failed to answer. The pause until it is asked again doubles with each failure."""
        client = self.client_of.pop(node, None)
        self._failures[node] = self._failures.get(node, 0) + 1
        self.postpone(node, now_s + self._config.enrol_timeout_s * 2 ** min(self._failures[node], MOST_DOUBLINGS))
        reason = one_line(error).removesuffix(".")
        self._note(node, server_round, f"left out, because its enrolment failed: {reason}", client)

    def settle(self, connected: Collection[str], server_round: int) -> list[EnrolAnswer]:
        """Assign partition ids to the connected nodes; return the answers of the new owners, by ascending client id."""
        claims = {node: client for node, client in self.client_of.items() if node in connected}
        claims |= {node: answer.client for node, answer in self._answers.items()}
        owners, refused = assign(self._owners, claims, keys=self._config.node_keys)
        accepted = [node for node, answer in self._answers.items() if owners.get(answer.client) == node]
        for node in accepted:
            client = self._answers[node].client
            if (before := self._owners.get(client, node)) != node:
                self.client_of.pop(before, None)
                self._note(node, server_round, f"taken over from node {before}, which left", client, before)
            self.client_of[node] = client
        for node, reason in refused.items():
            client = self._answers[node].client
            self._note(node, server_round, f"refused: {reason}", client, owners.get(client))
        self._owners, self._written = owners, None
        return sorted((self._answers.pop(node) for node in accepted), key=lambda answer: answer.client)

    def _note(
        self, node: str, server_round: int, outcome: str, client: int | None = None, owner: str | None = None
    ) -> None:
        """Log and store the outcome for a node, once for each outcome."""
        if self._reasons.get(node) != outcome:
            self._reasons[node] = outcome
            claim = IdentityConflict(server_round, node, outcome, client, owner)
            LOGGER.warning("Round %d: %s", server_round, claim.sentence)
            self.identity_conflicts.append(claim)

    def state(self) -> Arrays:
        """The owner of each partition id, text (K,); empty without an owner. Also the moments."""
        if self._written is None:
            self._written = np.array([self._owners.get(client, "") for client in range(self._total)])
        return {"owners": self._written.copy(), "moments": self.moments}

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned. Raises ValueError or ConfigError for one of another run."""
        if state["owners"].shape != (self._total,):
            raise ValueError(f"owners of {state['owners'].shape} partition ids")
        self._owners = {client: node for client, node in enumerate(map(str, state["owners"])) if node}
        self._written = None
        entries = 1 + 2 * self._admission.channels if state["moments"].size else 0
        self.moments = matching(state, "moments", np.zeros(entries))


def other_units(sums: Mapping[int, NDArray[np.float64]], features: Sequence[str]) -> list[str]:
    """Sentences about the columns whose values at a client seem to have another unit than at most other clients.

    Of two such clients, the mean and the deviation of one are at least ten times those of the other, by about the same
    factor, or the means are ten deviations apart. A column that is constant at one of them tells nothing.

    Parameters
    ----------
    sums : client -> its `fedsel_app.data.arrays.sums`, float64 (1 + 2 C,)
    features : column of each of the C features; "" for one without a unit
    """
    places, each, sentences = [place for place, name in enumerate(features) if name], np.stack(list(sums.values())), []
    means, squares = (part[:, places] for part in np.split(each[:, 1:] / each[:, :1], 2, axis=1))
    deviations = np.sqrt(np.maximum(squares - means**2, 0.0))
    deviations[deviations <= RESOLUTION * np.abs(means)] = np.nan
    for client, mean, deviation in zip(sums, means, deviations, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            by_mean, by_deviation = np.log10(means / mean), np.log10(deviations / deviation)
        scaled = (np.abs(by_deviation) >= 1.0) & (np.abs(by_mean - by_deviation) < SAME_FACTOR)
        moved = np.abs(means - mean) > FAR * np.maximum(deviations, deviation)
        unlike = (scaled | moved).sum(axis=0) > (len(sums) - 1) / 2
        sentences += [
            f"Check the unit of column '{one_line(features[places[column]])}' of client {client}: its mean is "
            f"{mean[column]:.6g}, and the median of the clients' means {np.median(means[:, column]):.6g}."
            for column in np.flatnonzero(unlike)
        ]
    return sentences


def take_examples(answers: Sequence[EnrolAnswer], roster: Roster, server_round: int, context: RunContext) -> None:
    """Write the examples of new clients into the roster, bounded by `example-clip`, and derive all local steps."""
    if not answers:
        return
    for answer in answers:
        roster.examples[answer.client] = answer.examples
    claimed = roster.examples.astype(np.float64)
    bounded = winsorised(claimed, context.reported_values.example_clip, claimed[claimed > 0.0])
    roster.examples[:] = bounded.astype(roster.examples.dtype)
    enrolled = np.flatnonzero(roster.examples)
    steps, least = cache(context.training.steps), context.admission.least_examples
    roster.local_steps[enrolled] = [steps(count, 0, least) for count in roster.examples[enrolled].tolist()]
    counted = roster.examples.tolist()
    clipped = [
        f"client {answer.client} says {answer.examples} and counts for {counted[answer.client]}"
        for answer in answers
        if counted[answer.client] < answer.examples
    ]
    if clipped:
        LOGGER.warning(
            "Round %d: 'example-clip' bounds the examples of clients (%d): %s",
            *(server_round, len(clipped), one_line("; ".join(clipped))),
        )


def take_label_counts(
    answers: Sequence[EnrolAnswer], roster: Roster, server_round: int, classes: int
) -> list[ConfigError]:
    """Write the label counts of new clients into the roster, each at most the client's examples.

    With `classes` = 0 their number is that of most clients that send any; the first ones decide for the run.
    Returns the errors of the clients whose counts are not valid. These are logged, and their counts are 0.
    """
    if not roster.label_counts.size:
        lengths = [len(answer.label_counts) // 8 for answer in answers if answer.label_counts]
        classes = classes or max(lengths, key=lengths.count, default=1)
        roster.label_counts = np.zeros((roster.examples.size, classes), np.int64)
    classes = roster.label_counts.shape[1]
    errors: list[ConfigError] = []
    for answer in answers:
        try:
            roster.label_counts[answer.client] = np.minimum(answer.counts(classes), roster.examples[answer.client])
        except ConfigError as error:
            errors.append(error)
            LOGGER.warning("Round %d: %s Its label counts are set to 0.", server_round, error)
    return errors
