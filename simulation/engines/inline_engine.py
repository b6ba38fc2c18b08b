"""Inline engine: one simulated run in this process, without Ray and workers. The clients answer one after the other."""

import logging
import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import MessageType
from flwr.common import ndarrays_to_parameters

from fedsel_app.exact_sums import CohortSum
from fedsel_app.messages.instructions import TrainInstruction, read_instruction
from fedsel_app.models.flat_model import FlatModel
from fedsel_app.records.files import MachineFault
from fedsel_app.wiring.client import own_client
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.server import run_folder, run_with
from simulation.engines.gpu_memory import refuse_full_gpu
from simulation.engines.preflight import refuse_unrunnable
from simulation.engines.run_folders import INTERRUPTED, discard_states, stop_sentence
from strategies.round.federation import ALL, Answer, Answers, Message, NodeError, Reply, Until


def simulate(config: AppConfig, on_round: Callable[[dict[str, Any]], None], *, verbose: bool = False) -> Path:
    """Simulate a run to its end, with `resume` from its last checkpoint; return the run folder.

    `on_round` is called with the record of each finished round. Ctrl-C ends the run between two steps of a client: a
    sentence explains how to resume it, and SystemExit is raised. Errors of the server are raised.
    """
    refuse_unrunnable(config)
    refuse_full_gpu(config)
    if not verbose:
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
    folder = run_folder(config)
    config = replace(config, records=replace(config.records, out=str(folder), state_dir=str(folder)))
    try:
        run_with(Inline(config), config, on_round)
    except KeyboardInterrupt:
        sys.stderr.write(stop_sentence("Interrupted", folder))
        raise SystemExit(INTERRUPTED) from None
    discard_states(folder)
    return folder


class Inline:
    """Federation of the K clients of a run. A new client object is built for every message, as in any engine."""

    simulated = True

    def __init__(self, config: AppConfig) -> None:
        self._config = config
        self._nodes = frozenset(map(str, range(config.run.clients)))
        self._loaded: FlatModel | None = None

    def nodes(self) -> Set[str]:
        """Ids of the nodes, which are the clients' own."""
        return self._nodes

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Let the clients answer one after the other; a client's exception is its answer.

        Raises MachineFault if the machine fails, which has too little memory or disk: the run can be resumed without a
        failure.
        """
        self._loaded, sums = None, CohortSum()
        return {message.node: self._answer(message, sums) for message in messages}

    def _answer(self, message: Message, sums: CohortSum) -> Answer:
        """A client's answer, or its exception. A model to evaluate is loaded once for all clients.

        The vectors of clients with a weight are added to the `sums`.
        """
        kind, arrays = message.instruction.message_type, list(message.model.arrays)
        try:
            client = own_client(self._config, int(message.node))
            if kind == MessageType.EVALUATE:
                self._loaded = self._loaded or client.load(arrays)
            instruction = read_instruction(message.instruction.to_config(), kind)
            own = sums if isinstance(instruction, TrainInstruction) and instruction.weight > 0.0 else None
            numbers, sent = client.answer(instruction, arrays, self._loaded, own)
            return replace(Reply.of(numbers, ndarrays_to_parameters(sent).tensors), sums=own)
        except MachineFault as error:
            raise MachineFault(f"{error} Then continue with: fedsel run --resume {self._config.records.out}") from error
        except Exception as error:  # noqa: BLE001 - any exception is a failure of this client alone
            return NodeError(message.node, str(error))
