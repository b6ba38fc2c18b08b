"""Records: the layout of fedsel's messages in Flower's `RecordDict`, for server and clients.

======================  ============  ==========================================================================
record                  kind          content
======================  ============  ==========================================================================
``fedsel``              ConfigRecord  question: an instruction; answer: the numbers
``arrays``              ArrayRecord   of fedsel's own client: flat vectors of the question, payloads of the answer
``fedsel.<client>``     ConfigRecord  the same for one of several simulated clients of a message
``arrays.<client>``     ArrayRecord   arrays of that client's answer; all of them share the question's ``arrays``
``fedsel.control``      ArrayRecord   question to a user's client: the control variate, float32 (N,), of SCAFFOLD
======================  ============  ==========================================================================

A user's client has an ArrayRecord, a ConfigRecord and a MetricRecord of its own beside these, under any other name.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fedsel_app.messages.instructions import Instruction
from fedsel_app.messages.scalars import Config, Scalar
from fedsel_app.wire.codec import WireError

OWN = "fedsel"
ARRAYS = "arrays"
CONTROL = "fedsel.control"
ERROR = "error"
"""Key of the text of the exception that one of several clients raised, in place of its numbers."""
ONE_READER = threading.Lock()
"""Held while an array is read: NumPy parses its header with `ast`, which fails now and then in several threads."""


@dataclass(frozen=True)
class ClientAnswer:
    """Answer of one client."""

    numbers: Config
    """Properties or metrics of the answer, and its loss and examples where it has such."""
    arrays: list[NDArray[Any]] = field(default_factory=list)

    @classmethod
    def of_fit(cls, arrays: list[NDArray[Any]], examples: int, metrics: Mapping[str, Scalar]) -> "ClientAnswer":
        """The answer that Flower's `NumPyClient.fit` returns in these parts."""
        return cls({**metrics, "examples": examples}, arrays)

    @classmethod
    def of_evaluation(cls, loss: float, examples: int, metrics: Mapping[str, Scalar]) -> "ClientAnswer":
        """The answer that Flower's `NumPyClient.evaluate` returns in these parts."""
        return cls({**metrics, "loss": loss, "examples": examples})


def own_record_name(client: int | None = None) -> str:
    """Name of the record of instructions and numbers; with a `client`, of that one among several."""
    return OWN if client is None else f"{OWN}.{client}"


def arrays_record_name(client: int | None = None) -> str:
    """Name of the record of arrays; with a `client`, of that one's answer among several."""
    return ARRAYS if client is None else f"{ARRAYS}.{client}"


def is_own(name: str) -> bool:
    """True for the name of a record that is fedsel's in a message of a user's app."""
    return name.split(".")[0] == OWN


# Questions ----------------------------------------------------------------------------------------------------


def question(instruction: Instruction, arrays: ArrayRecord | None = None) -> RecordDict:
    """A question to one client; its arrays are not copied."""
    content = RecordDict({} if arrays is None else {ARRAYS: arrays})
    content[OWN] = ConfigRecord(cast(dict[str, Any], instruction.to_config()))
    return content


def shared_question(instructions: Mapping[int, Instruction], arrays: ArrayRecord | None = None) -> RecordDict:
    """A question to several simulated clients, by partition id, that share the arrays."""
    content = RecordDict({} if arrays is None else {ARRAYS: arrays})
    for client, instruction in instructions.items():
        content[own_record_name(client)] = ConfigRecord(cast(dict[str, Any], instruction.to_config()))
    return content


def clients_named(content: RecordDict) -> tuple[int, ...]:
    """Partition ids of the several clients of a message, in its order; empty where it is to one client alone."""
    parts = (name.removeprefix(f"{OWN}.") for name in content if name.startswith(f"{OWN}."))
    return tuple(int(part) for part in parts if part.isdecimal())


def own_config(content: RecordDict, client: int | None = None) -> Config | None:
    """The instruction or the numbers, of one `client` among several if it is given; None where there are none."""
    record = content.get(own_record_name(client))
    return dict(cast(Mapping[str, Scalar], record)) if isinstance(record, ConfigRecord) else None


# Answers ------------------------------------------------------------------------------------------------------


def put_answer(content: RecordDict, answer: ClientAnswer, client: int | None = None) -> None:
    """Add a client's answer to the content of a message."""
    content[own_record_name(client)] = ConfigRecord(cast(dict[str, Any], answer.numbers))
    if answer.arrays:
        content[arrays_record_name(client)] = ArrayRecord(answer.arrays)


def put_error(content: RecordDict, error: Exception, client: int) -> None:
    """Add what one of several clients raised to the content of a message."""
    content[own_record_name(client)] = ConfigRecord({ERROR: str(error)})


def read_answer(content: RecordDict, client: int | None = None) -> ClientAnswer:
    """The answer of the client of a message, or of one `client` of several.

    Raises
    ------
    RuntimeError
        If the client raised; the text is that of its exception.
    WireError
        If the message has no answer in this layout.
    """
    numbers = own_config(content, client)
    if numbers is None:
        raise WireError(f"the answer has no record '{own_record_name(client)}'")
    if ERROR in numbers:
        raise RuntimeError(str(numbers[ERROR]))
    return ClientAnswer(numbers, read_arrays(content, arrays_record_name(client)))


# Arrays -------------------------------------------------------------------------------------------------------


def read_arrays(content: RecordDict, name: str = ARRAYS) -> list[NDArray[Any]]:
    """The arrays of a record, in its order; none where there is no such record. Raises WireError as `named_arrays`."""
    record = content.get(name)
    return list(named_arrays(record).values()) if isinstance(record, ArrayRecord) else []


def named_arrays(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """The arrays of a record by their names, in its order. Raises WireError if one of them cannot be read."""
    return {name: _read(name, array) for name, array in record.items()}


def users_arrays(content: RecordDict, name: str = "") -> tuple[str, ArrayRecord]:
    """Name and record of the user's arrays: the one of this `name` if there is one, else the only one of the user's.

    Raises
    ------
    WireError
        If the user has none, or several.
    """
    found = {key: record for key, record in content.items() if isinstance(record, ArrayRecord) and not is_own(key)}
    if name in found:
        return name, found[name]
    if len(found) != 1:
        raise WireError(f"a message has one record of arrays beside fedsel's; this one has {sorted(found) or 'none'}")
    return next(iter(found.items()))


def users_part(content: RecordDict) -> RecordDict:
    """The user's own records of a message, not copied."""
    return RecordDict({name: record for name, record in content.items() if not is_own(name)})


def _read(name: str, array: Array) -> NDArray[Any]:
    try:
        with ONE_READER:
            read: object = array.numpy()
    except Exception as error:
        raise WireError(f"the array '{name}' cannot be read ({error})") from error
    if not isinstance(read, np.ndarray):
        raise WireError(f"the array '{name}' is no NumPy array")
    return read
