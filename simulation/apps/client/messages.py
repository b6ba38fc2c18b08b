"""Messages to clients of a user's own Flower app: fedsel's records are sent with the user's.

fedsel's record has the layout of `fedsel_app.messages.records`. Beside it, a message has an ArrayRecord, a ConfigRecord
and a MetricRecord of the user's, with any other names. A question to train that also needs the loss before the training
has the record ``fedsel.evaluate`` with the user's config of an evaluation. A client without fedsel's line gets none of
fedsel's.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedsel_app.messages.answers import LARGEST
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.messages.records import FEDSEL
from fedsel_app.messages.reported_values import one_line
from fedsel_app.messages.scalars import Report, Scalar, read
from fedsel_app.wire.codec import WireError

EVALUATION = "fedsel.evaluate"
ENROL = "query.fedsel"
"""Type of the message that enrols a client. An app without fedsel's line has no function for it."""
TRAINING_LOSSES = ("train_loss", "train-loss", "loss")
EVALUATION_LOSSES = ("eval_loss", "eval-loss", "loss", "val_loss")
"""Usual names of the metric with a client's mean loss, in training and in evaluation."""
LOSS_REPORTS = frozenset({Report.INITIAL_LOSS, Report.RMS_LOSS})
"""Reports that are losses of the received model, from the user's function `losses` or from an evaluation."""
PARTITION_ID = "partition-id"
"""Flower's name for the partition id in the node configuration."""


MOST_RECORDS, MOST_METRICS, MOST_METRIC_BYTES = 100, 1000, 1 << 20
"""Upper bounds of the records in a reply, of its metrics, and of the bytes of their names and values."""


@dataclass(frozen=True)
class AppTrainInstruction(TrainInstruction):
    """Local training by a user's own client. fedsel's line compresses the update by the settings in the message."""

    seed: int = 0
    """Seed of the run."""
    compression: str = ""
    """Settings of the compression, as JSON."""
    statistics_positions: str = ""
    """Positions of the running statistics among the arrays, separated by commas."""
    exact: bool = False
    """True for whole updates without noise, in which tied arrays stay equal."""
    loss_key: str = ""
    """Metric of the user's evaluation that is its loss; empty: the first of `EVALUATION_LOSSES`."""

    @property
    def measures_loss(self) -> bool:
        """True if the client measures its loss before the training, so that the config of an evaluation is sent too."""
        return not LOSS_REPORTS.isdisjoint(self.reports)


def no_loss(metrics: Mapping[str, object], names: Iterable[str]) -> str:
    """Sentence on an evaluation without a loss from 0 to `LARGEST` among its `metrics`, under one of the `names`."""
    losses = [f"{name} = {metrics[name]}" for name in names if name in metrics]
    returned = one_line(", ".join(losses or sorted(metrics))) or "no metrics"
    return (
        f"its evaluate must return its loss as the metric {' or '.join(names)}, or as 'loss_key' of strategy(...), and "
        f"it returned {returned}"
    )


def reported_loss(metrics: Mapping[str, Scalar], names: Iterable[str] = TRAINING_LOSSES) -> float:
    """Mean loss of a user's client: its first metric of `names` within +-`LARGEST`; NaN if there is none."""
    for name in names:
        try:
            return float(read(metrics.get(name), float, name, -LARGEST, LARGEST))
        except WireError:
            continue
    return math.nan


def users_arrays(content: RecordDict, name: str = "") -> tuple[str, ArrayRecord]:
    """Name and record of the user's arrays: the record `name` if it exists, otherwise the user's only record of arrays.

    Raises WireError if the user has none, or several.
    """
    records = {key: record for key, record in users_records(content).items() if isinstance(record, ArrayRecord)}
    if name in records:
        return name, records[name]
    if len(records) != 1:
        raise WireError(
            f"a message must have one record of arrays beside fedsel's; this one has {sorted(records) or 'none'}"
        )
    return next(iter(records.items()))


def users_records(content: RecordDict) -> RecordDict:
    """The user's own records of a message, not copied."""
    return RecordDict({name: record for name, record in content.items() if name.split(".")[0] != FEDSEL})


def refuse_endless(content: RecordDict) -> None:
    """Raise WireError if a reply has too many records or metrics, or if their names and values are too long."""
    if len(content) > MOST_RECORDS:
        raise WireError(f"a reply may have at most {MOST_RECORDS} records, and {len(content)} came")
    records = [record for record in content.values() if isinstance(record, ConfigRecord | MetricRecord)]
    if (count := sum(map(len, records))) > MOST_METRICS:
        raise WireError(f"a reply may have at most {MOST_METRICS} metrics, and {count} came")
    length = sum(len(name) + _bytes(value) for record in records for name, value in record.items())
    if length > MOST_METRIC_BYTES:
        raise WireError(f"the metrics of a reply may have at most {MOST_METRIC_BYTES} bytes, and {length} came")


def _bytes(value: object) -> int:
    """Bytes of a scalar or of a list of scalars; a character counts as one."""
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return len(value) if isinstance(value, str | bytes) else 8
