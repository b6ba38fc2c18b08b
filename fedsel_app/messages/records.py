"""Records: the layout of fedsel's messages in Flower's `RecordDict`, for server and clients.

======================  ============  ==========================================================================
record                  kind          content
======================  ============  ==========================================================================
``fedsel``              ConfigRecord  question: an instruction; answer: the numbers
``arrays``              ArrayRecord   of fedsel's own client: flat vectors of the question, payloads of the answer
``fedsel.<client>``     ConfigRecord  the same for one of several simulated clients of a message
``arrays.<client>``     ArrayRecord   arrays of that client's answer; all of them share the question's ``arrays``
======================  ============  ==========================================================================

A user's client has further records: see `simulation.apps.client.messages`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fedsel_app.messages.instructions import Instruction
from fedsel_app.messages.scalars import Config, Scalar
from fedsel_app.wire.npy import read_named

FEDSEL = "fedsel"
ARRAYS = "arrays"
ERROR = "error"
"""Key of the text of an exception, which replaces the numbers of one of several clients."""
MACHINE_FAULT = "machine-fault"
"""Key of the text that replaces a client's numbers if its machine fails: the disk is full, or the memory too small."""
SUMS = "fedsel.sums"
"""Record of the sums over several clients of a message, whose own arrays are then missing."""


def record_name(record: str, client: int | None = None) -> str:
    """Name of the `record` of the only client of a message, or of one `client` of several."""
    return record if client is None else f"{record}.{client}"


def config_record(config: Mapping[str, Scalar]) -> ConfigRecord:
    """`config` as a ConfigRecord of Flower."""
    return ConfigRecord(cast(dict[str, Any], config))


def question(instructions: Instruction | Mapping[int, Instruction], arrays: ArrayRecord | None = None) -> RecordDict:
    """A question to one client, or to several simulated ones by partition id. They share the arrays without copies."""
    content = RecordDict({} if arrays is None else {ARRAYS: arrays})
    if isinstance(instructions, Instruction):
        content[FEDSEL] = config_record(instructions.to_config())
    else:
        for client, instruction in instructions.items():
            content[record_name(FEDSEL, client)] = config_record(instruction.to_config())
    return content


def clients_named(content: RecordDict) -> tuple[int, ...]:
    """Partition ids of the clients of a message to several clients, in its order; empty for a message to one client."""
    parts = (name.removeprefix(f"{FEDSEL}.") for name in content if name.startswith(f"{FEDSEL}."))
    return tuple(int(part) for part in parts if part.isdecimal())


def fedsel_config(content: RecordDict, client: int | None = None) -> Config | None:
    """The instruction or the numbers (of one `client` among several, if given); None if there are none."""
    record = content.get(record_name(FEDSEL, client))
    return dict(cast(Mapping[str, Scalar], record)) if isinstance(record, ConfigRecord) else None


def put_answer(
    content: RecordDict, numbers: Config, arrays: Sequence[NDArray[Any]] = (), client: int | None = None
) -> None:
    """Add the answer of the only client of a message, or of one `client` of several, to the content of the reply."""
    content[record_name(FEDSEL, client)] = config_record(numbers)
    if arrays:
        content[record_name(ARRAYS, client)] = ArrayRecord(list(arrays))


def put_sums(content: RecordDict, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Add sums over several clients to a reply, as arrays and not as their bytes: they do not leave this machine.

    Ray copies an array once and shares it with the reader. It would copy bytes three times.
    """
    record = ArrayRecord()
    for name, values in arrays.items():
        record[name] = Array(str(values.dtype), values.shape, "numpy.ndarray", b"")
        record[name].data = cast(bytes, values)
    content[SUMS] = record


def read_sums(content: RecordDict) -> dict[str, NDArray[Any]]:
    """What `put_sums` added, perhaps read-only; empty without it."""
    record = content.get(SUMS)
    return {name: np.asarray(array.data) for name, array in record.items()} if isinstance(record, ArrayRecord) else {}


def named_arrays(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Copies of a record's arrays by their names, in its order. Raises WireError if one of them cannot be read."""
    return {name: read_named(f"the array '{name}'", array.data).copy(order="K") for name, array in record.items()}


def content_arrays(content: RecordDict, name: str = ARRAYS) -> list[NDArray[Any]]:
    """The arrays of a record, in its order; empty if there is no such record. Raises WireError as `named_arrays`."""
    record = content.get(name)
    return list(named_arrays(record).values()) if isinstance(record, ArrayRecord) else []
