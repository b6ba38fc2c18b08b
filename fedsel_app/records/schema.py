"""Schema of a run's records: every field of rounds.jsonl, clients.jsonl and summary.json, its unit and its meaning.

A field with the default None is left out if it is None. If the score of a run is not the accuracy, its own name takes
the place of "accuracy" in the names of all fields: `final_g_mean` is then the last G-mean. docs/records.md shows this
schema as tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from fedsel_app.config.run import lower_wins

Row = dict[str, Any]
"""A line of rounds.jsonl or clients.jsonl, or summary.json, by the names of this schema."""
ACCURACY = "accuracy"
"""Score of a run whose records name no other."""
OWN_APP = "flower-app"
"""Setting `data` of a run in a user's own Flower app, and first word of its `model`."""
VERSION = 3
"""Version of the names below. Every written row and summary contains it."""


class Failure(TypedDict):
    """Client without a usable reply."""

    client: Annotated[int, "", "partition id"]
    reason: Annotated[str, "", "sentence on what went wrong"]


class SearchRecord(TypedDict, total=False):
    """Search of a participation policy for the cohort size, over the updates of an intermediate round."""

    failures: Annotated[list[Failure], "", "clients that trained only for the search and sent no usable reply"]
    global_loss: Annotated[float, "", "loss of the global model that the search starts from"]
    tried: Annotated[list[int], "clients", "cohort sizes in the order of the search"]
    losses: Annotated[list[float], "", "mean loss at each size"]
    improvements: Annotated[list[float], "", "improvement over the smoothed past losses at each size"]
    found: Annotated[int | None, "clients", "size that the search chose; null if none"]
    intermediate_s: Annotated[float, "s", "duration of the intermediate round on the run's clock, part of round_s"]


@dataclass
class RoundRecord:
    """One round: a line of rounds.jsonl."""

    round: Annotated[int, "", "number of the round, from 1"]
    method_round: Annotated[
        int | None, "", "number of the method's own round to which it belongs, if 'rounds' counts these"
    ] = None
    iteration: Annotated[
        int | None,
        "",
        "position within the method's own round, from 1; absent if clients that left cut the last one short, and the"
        " round only evaluates the model",
    ] = None
    cohort: Annotated[int, "clients", "number of replies that the round needs"] = 0
    available: Annotated[
        int | None, "clients", "connected clients that are not away as the round begins ('availability')"
    ] = None
    selected: Annotated[list[int], "", "clients that were asked to train"] = field(default_factory=list)
    attackers: Annotated[list[int] | None, "", "selected clients that attack in the round ('attack')"] = None
    aggregated: Annotated[list[int], "", "clients whose updates were aggregated"] = field(default_factory=list)
    unused: Annotated[list[int], "", "clients whose usable replies were not aggregated"] = field(default_factory=list)
    failures: Annotated[list[Failure], "", "clients without a usable reply, with the reason"] = field(
        default_factory=list
    )
    kept_fraction: Annotated[
        float | None, "share of entries", "kept fraction of the round; absent if no client was selected"
    ] = None
    kept_fractions: Annotated[list[float], "share of entries", "kept fraction of each selected client"] = field(
        default_factory=list
    )
    local_steps: Annotated[
        list[int] | None, "steps", "local steps of each selected client; absent if these are the settings'"
    ] = None
    scores: Annotated[list[float], "", "selection score of each selected client"] = field(default_factory=list)
    components: Annotated[dict[str, list[float]], "", "parts of the scores, by name"] = field(default_factory=dict)
    probe_losses: Annotated[list[float], "", "probed loss of each selected client; null if it was not probed"] = field(
        default_factory=list
    )
    probe_metrics: Annotated[
        dict[str, list[float]] | None, "", "probed metrics of each selected client, by name; absent if none is needed"
    ] = None
    uplink_bits_per_s: Annotated[list[float], "bit/s", "uplink of each selected client; null if unknown"] = field(
        default_factory=list
    )
    weights: Annotated[list[float], "", "weight of each aggregated update"] = field(default_factory=list)
    taken: Annotated[
        list[float] | None,
        "",
        "share of each aggregated update that the server took; absent if it took each update completely",
    ] = None
    staleness: Annotated[
        list[int] | None, "steps", "steps of the server since each aggregated client was sent its model ('waiting')"
    ] = None
    under_way: Annotated[int | None, "clients", "clients that train on as the round ends ('waiting')"] = None
    resting: Annotated[
        list[int] | None, "", "idle clients that were not selected, as they had given their share ('max-client-share')"
    ] = None
    begun_s: Annotated[
        float | None, "s", "from the begin of the round until the selected clients are sent the model"
    ] = None
    arrived_s: Annotated[
        list[float] | None, "s", "from the begin of the round until the reply of each aggregated client has arrived"
    ] = None
    fit_losses: Annotated[list[float], "", "mean training loss of each aggregated client; null if unknown"] = field(
        default_factory=list
    )
    fit_metrics: Annotated[
        dict[str, list[float]] | None,
        "",
        "metrics of each aggregated client after its training, by name; absent if none is needed",
    ] = None
    client_updates: Annotated[int, "updates", "number of usable updates received, those of a search included"] = 0
    round_s: Annotated[float, "s", "duration on the run's clock, simulated or measured"] = 0.0
    uplink_bytes: Annotated[int, "bytes", "updates as they were encoded, header and indices included"] = 0
    uplink_value_bytes: Annotated[
        int, "bytes", "only the values of these updates, 4 bytes each (QSGD: its fixed width)"
    ] = 0
    downlink_bytes: Annotated[int, "bytes", "models sent to the selected clients, 4 bytes for each entry"] = 0
    probe_bytes: Annotated[
        int, "bytes", "probes and reports: the models sent to clients, and 8 bytes for each number that they sent"
    ] = 0
    calibration_bytes: Annotated[
        int, "bytes", "BatchNorm calibration in both directions, and statistics and buffers sent with updates"
    ] = 0
    wall_s: Annotated[float, "s", "computing time of the round, by the clock of this machine"] = 0.0
    time_s: Annotated[float, "s", "the run's clock after the round: sum of round_s"] = 0.0
    total_uplink_bytes: Annotated[int, "bytes", "sum of uplink_bytes up to the round"] = 0
    total_uplink_value_bytes: Annotated[int, "bytes", "sum of uplink_value_bytes up to the round"] = 0
    score: Annotated[str | None, "", "name of the score by which models are compared, if not the accuracy"] = None
    accuracy: Annotated[float | None, "", "score on the server's test set, if it was evaluated"] = None
    loss: Annotated[float | None, "", "loss on the server's test set, if it was evaluated"] = None
    metrics: Annotated[dict[str, float] | None, "", "the other scores, by name"] = None
    validation_accuracy: Annotated[float | None, "", "score on the server's validation set ('validation-fraction')"] = (
        None
    )
    validation_loss: Annotated[float | None, "", "loss on the server's validation set"] = None
    client_accuracy: Annotated[float | None, "", "mean score over the clients' own test parts ('client-eval')"] = None
    client_metrics: Annotated[dict[str, float] | None, "", "means of the other scores over these, by name"] = None
    client_loss: Annotated[float | None, "", "mean loss over the clients' own test parts ('client-eval')"] = None
    epsilon: Annotated[float | None, "", "privacy spent so far ('dp-clip-norm')"] = None
    search: Annotated[SearchRecord | None, "", "search for the cohort size ('participation' isp)"] = None

    def add_totals(self, previous: Mapping[str, Any]) -> None:
        """Set the running totals, after the row of the `previous` round; {} before the first."""
        self.time_s = previous.get("time_s", 0) + self.round_s
        self.total_uplink_bytes = previous.get("total_uplink_bytes", 0) + self.uplink_bytes
        self.total_uplink_value_bytes = previous.get("total_uplink_value_bytes", 0) + self.uplink_value_bytes


@dataclass(frozen=True)
class EnrolmentRecord:
    """Enrolment of one client: a line of clients.jsonl."""

    client: Annotated[int, "", "partition id"]
    round: Annotated[int, "", "round in which it was first connected"]
    examples: Annotated[int, "examples", "number of its training examples"]


@dataclass(frozen=True)
class IdentityConflict:
    """Identity conflict: a node stated a partition id, and was refused or took it over. A line of clients.jsonl."""

    round: Annotated[int, "", "round in which the node stated it"]
    node: Annotated[str, "", "Flower's id of the node"]
    outcome: Annotated[str, "", "sentence that says what happened to its claim"]
    client: Annotated[int | None, "", "partition id that it stated, if it is one of this run"] = None
    owner: Annotated[str | None, "", "node that owns the partition id, or owned it until now"] = None

    @property
    def sentence(self) -> str:
        """The claim and its outcome."""
        claimed = "" if self.client is None else f" as client {self.client}"
        return f"Node {self.node}{claimed}: {self.outcome}."


@dataclass(frozen=True)
class ClientTestRecord:
    """Test of the global model on one client's own test part ('client-eval'): a line of clients.jsonl."""

    client: Annotated[int, "", "partition id"]
    round: Annotated[int, "", "round after which the model was tested"]
    accuracy: Annotated[float | None, "", "score"] = None
    score: Annotated[str | None, "", "name of the score, if not the accuracy"] = None
    metrics: Annotated[dict[str, float] | None, "", "the other scores, by name"] = None


class RunFailure(TypedDict):
    """Failure of a run of a comparison: a line of failures.jsonl."""

    name: Annotated[str, "", "name of the run"]
    exit_code: Annotated[int, "", "exit code of its process; 128 plus the signal's number if a signal ended it"]
    message: Annotated[str, "", "sentence on what went wrong"]


@dataclass(frozen=True)
class Summary:
    """A finished run: summary.json. MB are 10^6 bytes. A value is null if it was not reached or never evaluated."""

    strategy: Annotated[str, "", "selection method"]
    seed: Annotated[int, "", "seed of the run"]
    rounds: Annotated[int, "rounds", "finished rounds; the method's own rounds if 'rounds' counts these"]
    peak_accuracy: Annotated[float, "", "best score of all evaluations"]
    final_accuracy: Annotated[float, "", "score of the last evaluation; null if it was not finite"]
    stable_accuracy: Annotated[float, "", "mean score of the last ten evaluations"]
    stability_drop: Annotated[float, "", "how much worse the last score is than the best"]
    target_accuracy: Annotated[float, "", "score that the costs to target refer to"]
    rounds_to_target: Annotated[float | None, "rounds", "rounds until the first evaluation that reaches the target"]
    time_to_target_s: Annotated[float | None, "s", "time_s of that round"]
    uplink_to_target_mb: Annotated[float | None, "MB", "total_uplink_bytes of that round"]
    uplink_value_to_target_mb: Annotated[float | None, "MB", "total_uplink_value_bytes of that round"]
    client_updates_to_target: Annotated[
        float | None, "updates", "sum of client_updates to that round, searches included"
    ]
    best_validation_round: Annotated[
        float | None, "", "first round with the smallest validation_loss or, without it, client_loss"
    ]
    client_updates_to_best_validation: Annotated[float | None, "updates", "sum of client_updates up to that round"]
    best_validation_accuracy: Annotated[float | None, "", "score of that round on the server's test set"]
    best_validation_loss: Annotated[float | None, "", "loss of that round on the server's test set"]
    time_s: Annotated[float, "s", "sum of round_s"]
    uplink_mb: Annotated[float, "MB", "sum of uplink_bytes"]
    uplink_value_mb: Annotated[float, "MB", "sum of uplink_value_bytes"]
    downlink_mb: Annotated[float, "MB", "sum of downlink_bytes"]
    probe_mb: Annotated[float, "MB", "sum of probe_bytes"]
    calibration_mb: Annotated[float, "MB", "sum of calibration_bytes"]
    client_updates: Annotated[int, "updates", "sum of client_updates"]
    failure_count: Annotated[int, "failures", "number of failures in all rounds"]
    wall_s: Annotated[float, "s", "sum of wall_s"]
    selection_count_min: Annotated[int, "rounds", "rounds in which the client that was selected least was selected"]
    selection_count_max: Annotated[int, "rounds", "rounds in which the client that was selected most was selected"]
    selection_count_std: Annotated[float, "rounds", "standard deviation of these counts over the clients"]
    model_parameters: Annotated[int, "entries", "trainable parameters of the model"]
    versions: Annotated[
        dict[str, str | None], "", "versions of Python and packages; null if a package is not installed"
    ]
    ended: Annotated[str | None, "", "time of the end in UTC (ISO 8601)"] = None
    score: Annotated[str | None, "", "name of the score, if not the accuracy"] = None
    final_loss: Annotated[float | None, "", "loss of the last evaluation; null if it was not finite"] = None
    final_validation_accuracy: Annotated[float | None, "", "validation_accuracy of the last evaluation"] = None
    stable_validation_accuracy: Annotated[float | None, "", "mean of the last ten values of validation_accuracy"] = None
    final_client_accuracy: Annotated[float | None, "", "last client_accuracy"] = None
    final_client_loss: Annotated[float | None, "", "last client_loss"] = None
    final_epsilon: Annotated[float | None, "", "last epsilon"] = None
    final_metrics: Annotated[dict[str, float] | None, "", "metrics of the last evaluation"] = None
    final_client_metrics: Annotated[dict[str, float] | None, "", "last client_metrics"] = None


def schedule_round(row: Mapping[str, Any]) -> int:
    """Number of the round of a row of rounds.jsonl as the setting `rounds` counts."""
    return int(row.get("method_round", row["round"]))


ClientRecord = EnrolmentRecord | IdentityConflict | ClientTestRecord
"""A line of clients.jsonl."""


def as_row(record: RoundRecord | ClientRecord | Summary) -> Row:
    """Fields of a record by name, those of the score by its own name."""
    score = getattr(record, "score", None) or ACCURACY
    return {
        name.replace(ACCURACY, score): value
        for name, value in vars(record).items()
        if value is not None or getattr(type(record), name, ...) is not None
    }


def score_name(row: Mapping[str, Any]) -> str:
    """Name of the score of a row or a summary."""
    return str(row.get("score", ACCURACY))


def reaches(value: float, target: float, score: str) -> bool:
    """True if a value of the score of this name is as good as the `target`, or better."""
    return value <= target if lower_wins(score) else value >= target


def with_version(row: Mapping[str, Any]) -> Row:
    """The row as it is written: with the version of its names."""
    return {"version": VERSION, **row}


def without_version(row: Mapping[str, Any]) -> Row:
    """The row as it was read, without its version. Raises ValueError if the version is not `VERSION`."""
    values = dict(row)
    version = values.pop("version", VERSION)
    if version != VERSION:
        raise ValueError(f"they are of version {version!r}, and this fedsel reads version {VERSION}")
    return values
