"""Deployed client with data of its own: the schema that the server states stands before each of its messages."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flwr.common import NDArrays

from clients.client import ClientContext, SelectionClient
from clients.state import QUESTION, StateStore
from fedsel_app.config import ConfigError
from fedsel_app.config.data import OwnDataConfig
from fedsel_app.data.arrays import sums as feature_sums
from fedsel_app.data.dataset import load
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import EnrolInstruction, Instruction, PlaceInstruction
from fedsel_app.messages.scalars import Scalars
from fedsel_app.messages.schema import read_schema
from fedsel_app.secure_sums.statement import RefusedError

if TYPE_CHECKING:
    from fedsel_app.exact_sums import CohortSum
    from fedsel_app.models.flat_model import FlatModel


@dataclass(frozen=True, kw_only=True)
class OwnDataContext(ClientContext):
    """Context of a client with data of its own."""

    stated: StateStore
    """Store of what the server states of these data."""


class OwnDataClient(SelectionClient):
    """Client that reads its own data as the server's schema says, for one message."""

    _context: OwnDataContext

    def answer(
        self,
        instruction: Instruction,
        arrays: NDArrays,
        loaded: "FlatModel | None" = None,
        sums: "CohortSum | None" = None,
    ) -> tuple[Scalars, NDArrays]:
        """Carry out an instruction, with the schema that this run's enrolment has kept. As `SelectionClient.answer`."""
        if not isinstance(instruction, EnrolInstruction | PlaceInstruction):
            self._take_schema(self._context.stated.schema(self._context.client))
        return super().answer(instruction, arrays, loaded, sums)

    def _enrol(self, instruction: EnrolInstruction) -> EnrolAnswer:
        """The answer, with sums for the normalisation if they are asked for. The client's log says what is told."""
        self._keep_schema(instruction)
        answer, moments = super()._enrol(instruction), b""
        items = [f"{answer.examples} training examples"]
        if answer.label_counts:
            items.append("their number in each class")
        if instruction.moments:
            data = load(self._context.data, self._context.run.seed)
            moments = feature_sums(data.x_train[self._examples()[0]]).astype("<f8").tobytes()
            items.append("sums over them of each feature, for the normalisation")
        print(f"Client {self._context.client} tells the server of its data: {', '.join(items)}.", flush=True)
        return replace(answer, own_data=True, moments=moments)

    def _keep_schema(self, instruction: EnrolInstruction) -> None:
        """Use the server's schema for the client's own data. If the data fit it, keep it for the run.

        Raises ConfigError if the data do not fit, or if they need a normalisation that the server does not state.
        Raises ConfigError for a second schema in a run too: the answer would tell the server more of the data. Raises
        RefusedError if the client masks its updates, and the server asks for moments.
        """
        context, stated, schema = self._context, self._context.stated, instruction.schema or ""
        first = stated.question(context.client)
        if first not in (None, schema) and not (first and schema and read_schema(schema).follows(read_schema(first))):
            raise ConfigError("The server has stated another schema in this run. Submit the run again.")
        stated.keep_schema(context.client, schema, QUESTION)
        self._take_schema(schema)
        load(self._context.data, context.run.seed)
        protected = context.privacy.dp_clip_norm or context.aggregation.traits.robust
        shared = instruction.moments and context.privacy.share_moments and not protected
        if schema and not shared and (instruction.moments or not read_schema(schema).mean):
            raise ConfigError(
                "State on the server the normalisation ('scaling' in 'data-arguments', or mean and std in an .npz "
                "file), or set 'normalize' to false. No sums are sent under differential "
                "privacy, with a robust 'aggregation', after round 1, or with share-moments=false."
            )
        stated.keep_schema(context.client, schema)
        if instruction.moments and context.masks is not None:
            raise RefusedError("The server asks for moments of the data, which nothing masks. This client sends none.")

    def _take_schema(self, schema: str) -> None:
        self._context = replace(self._context, data=OwnDataConfig.of(self._context.data, schema))
