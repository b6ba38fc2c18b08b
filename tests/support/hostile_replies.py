"""Hostile replies to each type of message: bad arrays, records, metrics and enrolments of users' own apps."""

import gzip
import io
import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedsel_app
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, NAMES, by_name, model, node, register

GIB = 2**30
HEAD = 10
"""Bytes before the header: the magic string, the version, and the length of the header."""


def saved(array, **keywords) -> bytes:
    """The array as `numpy.save` writes it."""
    stream = io.BytesIO()
    np.save(stream, array, **keywords)
    return stream.getvalue()


def zipped(array) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, array)
    return stream.getvalue()


def bomb() -> bytes:
    """A zip archive of 20 kB that contains an array of 20 MB."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("arr_0.npy", "w") as member:
        member.write(headed("{'descr': '|u1', 'fortran_order': False, 'shape': (20000000,), }"))
        for _ in range(20):
            member.write(bytes(10**6))
    return stream.getvalue()


def headed(header: str | bytes, body: bytes = b"", *, version: int = 1) -> bytes:
    """An array with any header."""
    text = header.encode("latin1") if isinstance(header, str) else header
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + body


def claiming(shape: str, descr: str = "'<f4'", order: str = "False") -> Callable[[bytes], bytes]:
    """An array whose header says this, with 24 bytes of values."""
    return lambda honest: headed(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n", bytes(24))


def filled(value: float, dtype: type = np.float64) -> Callable[[bytes], bytes]:
    """The honest array with this value in all places."""
    return lambda honest: saved(np.full(np.load(io.BytesIO(honest)).shape, value, dtype))


def cast_to(dtype: str) -> Callable[[bytes], bytes]:
    """The honest array with another dtype."""
    return lambda honest: saved(np.load(io.BytesIO(honest)).astype(dtype))


UNREADABLE: dict[str, Callable[[bytes], bytes]] = {
    "no bytes": lambda honest: b"",
    "the magic string alone": lambda honest: honest[:6],
    "no header": lambda honest: honest[:HEAD],
    "no values": lambda honest: honest[:128],
    "the last byte missing": lambda honest: honest[:-1],
    "a byte too many": lambda honest: honest + b"\0",
    "another start": lambda honest: b"\x92" + honest[1:],
    "version 2": lambda honest: honest[:6] + b"\2\0" + honest[8:],
    "a header of 4 GiB": lambda honest: honest[:6] + b"\2\0\xff\xff\xff\xff" + honest[12:],
    "npz": lambda honest: zipped(np.load(io.BytesIO(honest))),
    "npz of 20 MB": lambda honest: bomb(),
    "gzip": gzip.compress,
    "a pickle": lambda honest: pickle.dumps([1.0] * 6),
    "objects": lambda honest: saved(np.array([None] * 6), allow_pickle=True),
    "objects in its header": claiming("(6,)", "'|O'"),
    "a shape of 2^70": claiming(f"({2**70},)"),
    "an empty shape of 2^62": claiming(f"({2**62}, 0)"),
    "60 GiB": claiming(f"({60 * GIB // 4},)"),
    "1 GiB of strings": claiming("(1,)", f"'|S{GIB}'"),
    "an itemsize of 2^31": claiming("(0,)", f"'<f{2**31}'"),
    "a shape of -1": claiming("(-1,)"),
    "a shape of truth values": claiming("(True, True, 6)"),
    "a shape of floats": claiming("(6.0,)"),
    "a shape of 5,000 digits": claiming(f"({'9' * 5000},)"),
    "3,000 dimensions of 10^17": claiming(f"({', '.join([str(10**17)] * 3000)})"),
    "140 nested brackets": claiming("(" * 140 + ")" * 140),
    "5,000 nested brackets": claiming("(" * 5000 + ")" * 5000),
    "5,000 minus signs": claiming(f"({'-' * 5000}6,)"),
    "brackets alone": lambda honest: headed("(" * 60_000),
    "code as header": lambda honest: headed("__import__('os').abort()"),
    "no shape": lambda honest: headed("{'descr': '<f4', 'fortran_order': False, }\n", bytes(24)),
    "another key": lambda honest: headed(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1, }\n", bytes(24)
    ),
    "a structure": claiming("(6,)", "[('a', '<f4')]"),
    "1,000 nested structures": claiming("(6,)", "[('a', " * 1000 + "'<f4'" + ")]" * 1000),
    "a structure of 2^62 bytes": claiming("(1,)", f"[('a', '<f4', ({2**60},))]"),
    "no dtype": claiming("(6,)", "None"),
    "complex64": cast_to("complex64"),
    "long doubles": cast_to("longdouble"),
    "text": cast_to("<U8"),
    "dates": claiming("(3,)", "'<M8[s]'"),
}
"""Name -> the bytes that replace an honest array of the user's model, or of fedsel's line."""
FOREIGN: dict[str, Callable[[bytes], bytes]] = {
    "another shape": lambda honest: saved(np.zeros((7, 11), np.float32)),
    "0-d": lambda honest: saved(np.float32(1.0)),
    "empty": lambda honest: saved(np.zeros(0, np.float32)),
    "a million values": lambda honest: saved(np.zeros(10**6, np.float32)),
    "NaN": filled(np.nan),
    "infinite": filled(np.inf),
    "doubles of 1e300": filled(1e300),
    "halves of infinity": filled(-np.inf, np.float16),
}
"""The same for arrays that can be read, but that no honest client sends."""

ARRAYS = {name: UNREADABLE[name] for name in ("no bytes", "npz", "objects", "a shape of 2^70", "60 GiB")} | FOREIGN
"""Arrays for whole runs; the tests of the reader of arrays have all of `UNREADABLE`."""

Change = Callable[[Message], Message]


def change(function: Callable[..., None]) -> Callable[..., Change]:
    """Function of some values that returns what `function` makes of a reply with these values."""

    def of(*values: Any) -> Change:
        def changed(reply: Message) -> Message:
            function(reply, *values)
            return reply

        return changed

    return of


@change
def with_array(reply: Message, make: Callable[[bytes], bytes]) -> None:
    """The reply with another last array of the user's model, or with another update of fedsel's line."""
    record = reply.content["arrays"]
    name = list(record)[-2 if len(record) == len(NAMES) else 0]
    honest = record[name]
    record[name] = Array(honest.dtype, honest.shape, honest.stype, make(honest.data))


@change
def with_arrays(reply: Message, make: Callable[[list[Array]], Iterable[Array]]) -> None:
    """The reply with another list of arrays."""
    record = reply.content["arrays"]
    arrays = dict(enumerate(make(list(record.values()))))
    record.clear()
    record.update({str(place): array for place, array in arrays.items()})


@change
def with_examples(reply: Message, examples: object) -> None:
    """The reply with another number of examples."""
    reply.content["metrics"]["num-examples"] = examples


@change
def with_metrics(reply: Message, metrics: Callable[[], dict[str, Any]]) -> None:
    """The reply with these metrics too."""
    reply.content["metrics"].update(metrics())


@change
def without(reply: Message, record: str) -> None:
    """The reply without one of its records."""
    del reply.content[record]


@change
def with_content(reply: Message, content: RecordDict) -> None:
    """The reply with another content."""
    reply.content = content


@change
def with_records(reply: Message, records: Callable[[], dict[str, Any]]) -> None:
    """The reply with these records too."""
    reply.content.update(records())


def failing(reply: Message) -> Message:
    """An error in place of the reply."""
    raise ValueError("x" * 3_000_000)


HOSTILE_REPLIES: dict[str, Change] = {
    **{f"array: {name}": with_array(make) for name, make in ARRAYS.items()},
    "no arrays": with_arrays(lambda arrays: []),
    "an array too many": with_arrays(lambda arrays: [*arrays, arrays[0]]),
    "20,000 arrays": with_arrays(lambda arrays: arrays[:1] * 20_000),
    "no record of arrays": without("arrays"),
    "no record of metrics": without("metrics"),
    "no records": with_content(RecordDict()),
    "a record of numbers in place of arrays": with_content(RecordDict({"arrays": MetricRecord({"a": 1})})),
    "no examples": with_examples(0),
    "minus one examples": with_examples(-1),
    "2^62 examples": with_examples(2**62),
    "NaN examples": with_examples(float("nan")),
    "100,000 metrics": with_metrics(lambda: {f"m{number}": 1.0 for number in range(100_000)}),
    "a list of 200,000 metrics": with_metrics(lambda: {"m": [1.0] * 200_000}),
    "a name of 2 MB": with_metrics(lambda: {"m" * 2_000_000: 1.0}),
}
"""Name -> what it makes of an honest reply. Each must be refused."""


HOSTILE_TESTS: dict[str, Change] = {
    "no records": with_content(RecordDict()),
    "no record of metrics": without("metrics"),
    "a record of arrays in place of metrics": with_content(RecordDict({"metrics": ArrayRecord()})),
    "minus one examples": with_examples(-1),
    "2^62 examples": with_examples(2**62),
    "NaN examples": with_examples(float("nan")),
    "a loss of NaN": with_metrics(lambda: {"eval_loss": float("nan")}),
    "a list of losses": with_metrics(lambda: {"eval_loss": [1.0] * 1000}),
    "100,000 metrics": with_metrics(lambda: {f"m{number}": 1.0 for number in range(100_000)}),
    "names with line breaks and escapes": with_metrics(
        lambda: {"a\nRound 9: client 1 is left out\x1b[2J": float("nan")}
    ),
    "NaN metrics": with_metrics(lambda: {"eval_acc": float("nan"), "accuracy": float("-inf")}),
    "20,000 records": with_records(lambda: {f"r{number}": MetricRecord({"m": 1.0}) for number in range(20_000)}),
    "fedsel's record with 3 MB": with_records(lambda: {"fedsel": ConfigRecord({"loss": "9" * 3_000_000})}),
    "fedsel's record with an error": with_records(lambda: {"fedsel": ConfigRecord({"error": 7})}),
    "an array of 3.6 TiB": with_records(
        lambda: {"fedsel.more": ArrayRecord({"0": Array("float32", (10**12,), "numpy.ndarray", b"\x93NUMPY")})}
    ),
}
"""Name -> what it makes of an honest reply to an evaluation. None may end the run, or move the others' metrics."""


def enrolled(**numbers) -> Change:
    """The reply to an enrolment with fedsel's record of these numbers."""
    return with_content(RecordDict({"fedsel": ConfigRecord(numbers)}))


HOSTILE_ENROLMENTS: dict[str, Change] = {
    "no records": with_content(RecordDict()),
    "metrics": with_content(RecordDict({"fedsel": MetricRecord({"client": 0})})),
    "arrays": with_content(
        RecordDict({"fedsel": ArrayRecord({"0": Array("|O", (1,), "numpy.ndarray", b"\x93NUMPY")})})
    ),
    "an error of 3 MB": failing,
    "client -1": enrolled(client=-1, examples=10),
    "client 4 of 4": enrolled(client=CLIENTS, examples=10),
    "a list of clients": enrolled(client=[0, 1], examples=10),
    "a client of NaN": enrolled(client=float("nan"), examples=10),
    "2^62 examples": enrolled(client=0, examples=2**62),
    "label counts of 8 MB": enrolled(client=0, examples=10, label_counts=b"\xff" * 8_000_000),
    "unknown abilities": enrolled(client=0, examples=10, abilities=["fly"] * 10_000),
    "constants of 8 MB": enrolled(client=0, examples=10, constants=b"\xff" * 8_000_000, moments=b"\xff" * 8_000_000),
}
"""Name -> what it makes of an honest answer to an enrolment. None may keep the others from training."""


def hostile_run(
    line: bool,
    replies: Iterable[Change],
    folder: Path,
    kind: str = "train",
    method: str = "random",
    **options,
) -> Mapping[int, Mapping[str, Any]]:
    """Carry out a run in which client 0 sends one of these `replies` in each round, and the other clients are honest.

    Parameters
    ----------
    line : True if the clients have fedsel's line
    kind : type of the messages that get these replies
    method, options : selection method, and further options of the strategy

    Returns
    -------
    round -> means of the clients' metrics of their evaluations
    """
    replies = list(replies)
    left = iter(replies)

    app = register(fedsel_app.client_app() if line else ClientApp(), [])

    def hostile(message: Message, context: Context) -> Message:
        """The clients' app, with other replies."""
        if context.node_config["partition-id"] != 0 or not message.metadata.message_type.startswith(kind):
            return app(message, context)
        if kind == "query":
            return next(left)(Message(RecordDict(), reply_to=message))
        return next(left)(app(message, context))

    settings = {"clients": CLIENTS, "cohort": CLIENTS, "out": folder / "run", "links": "simulated"}
    settings |= {"rounds": len(replies), "compressor": "top-k" if line else "none"} | options
    state = folder / "state"
    built = fedsel_app.strategy(method, **settings)
    contexts = {90 + client: node(client, state) for client in range(CLIENTS)}
    grid = InProcessGrid(hostile, contexts)
    return built.start(grid=grid, initial_arrays=by_name(model())).evaluate_metrics_clientapp
