"""Answers of several clients of one process to questions about one model, as simulations have them."""

from typing import TYPE_CHECKING

from flwr.app import MessageType
from flwr.common import NDArrays

from clients.client import SelectionClient
from fedsel_app.messages.instructions import TrainInstruction, read_instruction
from fedsel_app.messages.scalars import Config

if TYPE_CHECKING:
    from fedsel_app.exact_sums import CohortSum
    from fedsel_app.models.flat_model import FlatModel


class SharedAnswers:
    """Answers of clients that share a process and the arrays of a model.

    A model to evaluate is loaded once for all clients, equal instructions in a row are read once, and the payloads of
    trainings with a weight are added up.
    """

    def __init__(self) -> None:
        self._loaded: FlatModel | None = None
        self._last: tuple[str, Config] | None = None
        """Type and config of the last instruction."""
        self.sums: CohortSum | None = None
        """Sums of the payloads so far; None before the first."""

    def answer(
        self, client: SelectionClient, message_type: str, config: Config, arrays: NDArrays
    ) -> tuple[Config, NDArrays, bool]:
        """A client's answer to the instruction in `config`, the same as to a message of its own.

        Returns
        -------
        numbers, arrays
            As `SelectionClient.answer` returns them.
        added
            Whether the payloads were added to the `sums` instead of returned.

        Raises what `SelectionClient.answer` raises.
        """
        if self._last != (message_type, config):
            self._instruction, self._last = read_instruction(config, message_type), (message_type, config)
        instruction = self._instruction
        if message_type == MessageType.EVALUATE:
            self._loaded = self._loaded or client.load(arrays)
        added = isinstance(instruction, TrainInstruction) and instruction.weight > 0.0
        if added and self.sums is None:
            from fedsel_app.exact_sums import CohortSum

            self.sums = CohortSum()
        numbers, payloads = client.answer(instruction, arrays, self._loaded, self.sums if added else None)
        return numbers, payloads, added
