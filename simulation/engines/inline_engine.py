"""Inline engine: one simulated run in this process, without Ray and workers. The clients answer one after the other."""

import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from flwr.common import ndarrays_to_parameters

from clients.client import SelectionClient
from clients.flower_client import SharedAnswers
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import Instruction, read_instruction
from fedsel_app.records.files import MachineFault
from fedsel_app.wiring.client import client_builder
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.server import run_with
from simulation.engines.preflight import simulated_run
from simulation.engines.run_folders import stop_sentence
from simulation.engines.this_process import interrupted
from strategies.round.federation import ALL, Answer, Answers, Message, NodeError, Reply, Until


def simulate(config: AppConfig, on_round: Callable[[dict[str, Any]], None]) -> Path:
    """Simulate a run to its end, with `resume` from its last checkpoint; return the run folder.

    `on_round` is called with the record of each finished round. Ctrl-C or SIGTERM ends the run between two steps of a
    client: a sentence explains how to resume it, and SystemExit is raised. Errors of the server are raised.
    """
    with simulated_run(config) as (placed, folder):
        try:
            run_with(Inline(placed), placed, on_round)
        except (KeyboardInterrupt, SystemExit) as stop:
            if (code := interrupted(stop)) is None:
                raise
            sys.stderr.write(stop_sentence("Interrupted", folder))
            raise SystemExit(code) from None
    return folder


class Inline:
    """Federation of the K clients of a run. A new client object is built for every message, as in any engine."""

    simulated = True

    def __init__(self, config: AppConfig) -> None:
        self._config = config
        self._nodes = frozenset(map(str, range(config.run.clients)))

    @cached_property
    def _build_client(self) -> Callable[[int], SelectionClient]:
        return client_builder(self._config)

    def nodes(self) -> Set[str]:
        """Ids of the nodes, which are the clients' own."""
        return self._nodes

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Let the clients answer one after the other; a client's exception is its answer.

        Raises MachineFault if the machine fails, which has too little memory or disk: the run can be resumed without a
        failure.
        """
        shared = SharedAnswers()
        sent = cache(lambda instruction: read_instruction(instruction.to_config(), instruction.message_type))
        return {message.node: self._answer(message, sent, shared) for message in messages}

    def _answer(self, message: Message, sent: Callable[[Instruction], Instruction], shared: SharedAnswers) -> Answer:
        """A client's answer to the message, whose instruction arrives as `sent` returns it, or its exception."""
        try:
            client = self._build_client(int(message.node))
            told, payloads, added = shared.answer(client, sent(message.instruction), list(message.model.arrays))
            if isinstance(told, EnrolAnswer):
                return Reply(enrolment=told)
            reply = Reply.of(told.to_config(), ndarrays_to_parameters(payloads).tensors if payloads else ())
            return replace(reply, sums=shared.sums) if added else reply
        except MachineFault as error:
            raise MachineFault(f"{error} Then continue with: fedsel run --resume {self._config.records.out}") from error
        except Exception as error:  # noqa: BLE001 - any exception is a failure of this client alone
            return NodeError(message.node, str(error))
