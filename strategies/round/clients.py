"""Connected clients by partition id: enrols them, asks them, and collects their answers."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from fedsel_app.config import ConfigError, EnrolmentConfig
from fedsel_app.exact_sums import weighted_sum
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import EnrolInstruction, Instruction, PersonalInstruction
from fedsel_app.messages.reported_values import one_line, winsorised
from fedsel_app.secure_sums.statement import SignedKey
from fedsel_app.wire.codec import Update
from strategies.round.federation import Answer, Federation, Mailbox, Message, NodeError, Reply, SentModel, Until
from strategies.round.replies.bounds import bounded_sums
from strategies.round.replies.enrolment import SHARED, Enrolment, other_units
from strategies.run_context import EVERYBODY, Admission

LOGGER = logging.getLogger("fedsel")
UNAVAILABLE = "Error: Node Unavailable"
"""Start of Flower's error reason for a node that it listed as connected but that does not answer."""
ASK_AGAIN_S = 1.0
SCALAR_BYTES = 8
"""Uplink charge of one reported number (a loss, a count)."""
LOOK_S = 0.1
"""Seconds between two checks of the connected nodes while the server waits for all clients."""


class ConnectedClients:
    """Connected clients by partition id. Flower's own node ids are random in every run, and nothing depends on them.

    Parameters
    ----------
    total : clients of the run, K
    answer_s : timeout in seconds of an answer outside training; 0: none
    admission : what the model requires of a client
    masked : True if the clients make keys of the run, for secure sums

    Attributes
    ----------
    federation : the clients of the current round
    enrolment : the owners of the partition ids
    nodes : partition id -> node that owns it, for connected nodes
    history_of : client -> fields of a `PersonalInstruction`; None if no layer of the model stays with the clients
    keys : partition id -> the client's signed key of the run, with secure sums
    """

    federation: Federation

    def __init__(
        self,
        total: int,
        config: EnrolmentConfig,
        *,
        answer_s: float = 0.0,
        admission: Admission = EVERYBODY,
        masked: bool = False,
    ) -> None:
        self._masked = masked
        self._total, self._config, self._admission = total, config, admission
        self._until = Until(deadline_s=answer_s)
        self._met: Set[str] = frozenset()
        self._schema = admission.schema
        self.enrolment = Enrolment(total, config, admission)
        self.nodes: dict[int, str] = {}
        self.history_of: Callable[[int], dict[str, Any]] | None = None
        self.keys: dict[int, SignedKey] = {}
        self._said, self._say_at_s = "", 0.0
        self._sent_to: dict[str, int] = {}
        """Node -> client, of messages without an answer."""

    def enrol(
        self, federation: Federation, server_round: int = 0, label_counts: bool = False, *, wait: bool
    ) -> list[EnrolAnswer]:
        """Update `nodes` to the connected nodes, and enrol new ones, with `label_counts` if requested.

        With `wait`, block until all clients are connected, or until the timeout if enough of them are connected then.
        In a deployment they get the schema of the data, and those with data of their own send their moments if these
        are needed (`Admission.scale`). After a restart of the SuperLink, Flower may list a node as connected that does
        not answer yet, and then as gone until it is back; such a node is asked again. A node that is not a client of
        this run, or that reports the partition id of another, is left out.

        Raises ConfigError with `wait`, if too few clients connect in time or none can be enrolled; in a simulation, if
        any client cannot be enrolled.
        """
        self.federation = federation
        connected = federation.nodes()
        if not wait and (connected is self._met or connected == self._met) and not self.enrolment.due(time.monotonic()):
            return []
        deadline_s = time.monotonic() + self._config.connect_timeout_s
        if wait:
            connected = self._await_all(deadline_s)
            self.enrolment.renew(connected)
            if self._admission.scale is not None and self.enrolment.moments.size:
                self._schema = self._admission.scale(self.enrolment.moments)
        enrolled: list[EnrolAnswer] = []
        unscaled = self._admission.scale is not None and not self.enrolment.moments.size
        instruction = EnrolInstruction(
            label_counts,
            constants=bool(self._admission.constants),
            schema=None if federation.simulated else self._schema or None,
            moments=wait and unscaled and not federation.simulated,
            run_key=self._masked and not federation.simulated,
        )
        while True:
            self._met = connected
            away = self._ask_new(instruction, server_round, wait=wait)
            enrolled += self.enrolment.settle(connected, server_round)
            if wait:  # until the last of them has answered, another may be gone
                connected = federation.nodes()
            self.keys |= {each.client: SignedKey(each.run_key, each.key_signature) for each in enrolled if each.run_key}
            self.nodes = {client: node for node, client in self.enrolment.client_of.items() if node in connected}
            late = time.monotonic() >= deadline_s
            if wait and federation.simulated and self.enrolment.identity_conflicts:
                raise ConfigError(f"A simulated client could not be enrolled. {self._excuse()}")
            all_answered = not away and len(self._met) == self._total
            if wait and not self.nodes and (late or all_answered):
                raise ConfigError(f"No client could be enrolled. {self._excuse()}")
            if not wait or late or len(self.nodes) == self._total:
                break
            self._say_who(len(self.nodes), "enrolled", deadline_s)
            time.sleep(ASK_AGAIN_S)
            connected = federation.nodes()
        if instruction.moments:
            enrolled = self._scaled(enrolled, server_round)
        if wait and len(self.nodes) < self._total:
            missing = sorted(set(range(self._total)) - set(self.nodes))
            LOGGER.warning("The run starts without the clients %s. %s", one_line(missing), self._excuse())
        return sorted(enrolled, key=lambda enrolment: enrolment.client)

    def _scaled(self, enrolled: list[EnrolAnswer], server_round: int) -> list[EnrolAnswer]:
        """Complete the schema by the sum of the moments of the `enrolled`, and send it to them.

        Clients with a part of the server's data are left out then. Returns the answers of the others; without any
        moments, of all. Raises ConfigError if there are none.
        """
        admission, answers = self._admission, sorted(enrolled, key=lambda answer: answer.client)
        sent = {answer.client: answer.sums(admission.channels) for answer in answers if answer.moments}
        if admission.scale is None or not sent:
            return enrolled
        for sentence in other_units(sent, admission.features):
            LOGGER.warning(sentence)
        rows = np.stack(list(sent.values()))
        if admission.example_clip:
            claimed = np.array([answer.examples for answer in answers if answer.moments], np.float64)
            rows = bounded_sums(rows, claimed, winsorised(claimed, admission.example_clip))
        if told := [client for client, row in zip(sent, rows, strict=True) if (row != sent[client]).any()]:
            LOGGER.warning(
                "Round %d: the sums over the data of clients %s count only as far as those of the others allow: see "
                "'example-clip' and 'max-update-norm'.",
                *(server_round, one_line(told)),
            )
        self.enrolment.moments = weighted_sum([Update(row.size, None, row) for row in rows], [1.0] * len(rows))
        self._schema = admission.scale(self.enrolment.moments)
        complete = EnrolInstruction(schema=self._schema)
        messages = [Message(node, complete, client=client) for client, node in self.nodes.items() if client in sent]
        for client in self.nodes.keys() - sent.keys():
            self.enrolment.leave_out(self.nodes[client], SHARED, server_round)
        until = Until(deadline_s=max(self._config.enrol_timeout_s, self._config.connect_timeout_s))
        for node, answer in self.federation.ask(messages, until).items():
            if isinstance(answer, NodeError):
                self.enrolment.fail(node, answer, server_round, time.monotonic())
        self.nodes = {client: node for client, node in self.nodes.items() if node in self.enrolment.client_of}
        if not self.nodes:
            raise ConfigError(f"No client could be enrolled. {self._excuse()}")
        return [answer for answer in answers if answer.client in self.nodes]

    def _await_all(self, deadline_s: float) -> Set[str]:
        """Wait until one node per client is connected. Raises ConfigError if too few connect in time."""
        enough = self._config.min_available_clients or self._total
        self._say_at_s = time.monotonic() + ASK_AGAIN_S
        while len(connected := self.federation.nodes()) < self._total:
            if time.monotonic() >= deadline_s:
                if len(connected) >= enough:
                    break
                raise ConfigError(
                    f"Only {len(connected)} of {self._total} clients connected within "
                    f"{self._config.connect_timeout_s} s. Set 'clients' to the number of supernodes (or start more), "
                    "raise 'connect-timeout-s', or start with fewer by 'min-available-clients'."
                )
            self._say_who(len(connected), "connected", deadline_s)
            time.sleep(LOOK_S)
        return connected

    def _say_who(self, clients: int, state: str, deadline_s: float) -> None:
        """Print once for how many clients a deployed server still waits, unless it has only begun to wait."""
        waits = f"{clients} of {self._total} clients {state}"
        if waits == self._said or time.monotonic() < self._say_at_s or self.federation.simulated:
            return
        self._said = waits
        until = datetime.now() + timedelta(seconds=deadline_s - time.monotonic())
        print(f"{waits}; waiting until {until:%H:%M}", flush=True)

    def _ask_new(self, instruction: EnrolInstruction, server_round: int, *, wait: bool) -> bool:
        """Ask new nodes for their identity; True if one does not answer although Flower lists it as connected."""
        enrolment, config = self.enrolment, self._config
        enrolment.forget(self._met)
        answer_s = max(config.enrol_timeout_s, config.connect_timeout_s if wait else 0.0)
        until = Until() if self.federation.simulated else Until(deadline_s=answer_s)
        unheard = enrolment.unheard(self._met, time.monotonic())
        any_away = False
        for node, answer in self.federation.ask([Message(node, instruction) for node in unheard], until).items():
            if isinstance(answer, Reply):
                enrolment.hear(node, answer, server_round)
            elif UNAVAILABLE in str(answer):
                any_away = True
                enrolment.postpone(node, time.monotonic() + ASK_AGAIN_S)
            else:
                enrolment.fail(node, answer, server_round, time.monotonic())
        return any_away

    def _excuse(self) -> str:
        """The last identity conflict as a sentence."""
        conflicts = self.enrolment.identity_conflicts
        return conflicts[-1].sentence if conflicts else "They are not connected."

    def messages(self, instructions: Mapping[int, Instruction], model: SentModel) -> list[Message]:
        """One message for each of these clients, by ascending id."""
        asked = dict(sorted(instructions.items()))
        return [Message(self.nodes[client], self._personal(asked[client], client), model, client) for client in asked]

    def _personal(self, instruction: Instruction, client: int) -> Instruction:
        if self.history_of is None or not isinstance(instruction, PersonalInstruction):
            return instruction
        return replace(instruction, **self.history_of(client))

    def ask(
        self, instructions: Mapping[int, Instruction], model: SentModel, until: Until | None = None
    ) -> dict[int, Answer]:
        """Ask each of these clients; every client's answer, by ascending id."""
        return self.send(self.messages(instructions, model), self._until if until is None else until)

    def send(self, messages: Sequence[Message], until: Until) -> dict[int, Answer]:
        """Send these messages and wait; every client's answer, by ascending id."""
        answers, client_of = self.federation.ask(messages, until), self.enrolment.client_of
        return dict(sorted((client_of[node], answer) for node, answer in answers.items()))

    def dispatch(self, messages: Sequence[Message]) -> None:
        """Send these messages, and do not wait. Raises ConfigError if the federation always waits."""
        self._mailbox().send(messages)
        self._sent_to |= {message.node: message.client for message in messages if message.client is not None}

    def arrivals(self) -> list[tuple[int, Answer]]:
        """The clients whose answers have come, and these; it waits for one. Empty if none is to come."""
        return [(self._sent_to.pop(node), answer) for node, answer in self._mailbox().receive().items()]

    def enrol_again(self, clients: Iterable[int]) -> None:
        """Ask these clients again for their identity and their key, before the next round."""
        for client in clients:
            self.enrolment.client_of.pop(self.nodes.get(client, ""), None)
            self.keys.pop(client, None)
            self._met = frozenset()

    def _mailbox(self) -> Mailbox:
        if self.federation.simulated or not isinstance(self.federation, Mailbox):
            raise ConfigError("Set 'links' to simulated, or 'waiting' to synchronous: these clients are simulated.")
        return self.federation
