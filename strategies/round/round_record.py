"""What a round did, as it is written down: who, with which weights, in how many seconds and bytes."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from strategies.roster import Floats, Roster
from strategies.round.connections import SCALAR_BYTES
from strategies.round.replies import Replies
from strategies.round.round_plan import Plan
from strategies.run_context import Links


def round_row(
    plan: Plan, replies: Replies, weights: Floats, roster: Roster, links: Links, calibration_bytes: int, wall_s: float
) -> dict[str, Any]:
    """The round's entries in rounds.jsonl, its evaluation apart. `wall_s` is what it has taken so far."""
    selection, came = plan.selection, replies.clients
    return {
        "selected": selection.clients.tolist(),
        "uplink_bits_per_s": roster.uplink_bits_per_s[selection.clients].tolist(),
        "kept_fractions": plan.kept_fractions.tolist(),
        "scores": selection.scores.tolist(),
        "components": {name: values.tolist() for name, values in selection.components.items()},
        "probe_losses": roster.losses[selection.clients].tolist(),
        "aggregated": came.tolist(),
        "weights": weights.tolist(),
        "fit_losses": replies.losses.tolist(),
        "failures": sorted([*plan.probe.failures, *replies.failures], key=itemgetter("client")),
        "unused": replies.unused.tolist(),
        "round_s": links.round_seconds(replies.work(roster, plan.probe.duration_s), wall_s),
        "uplink_bytes": int(replies.uplink_bytes.sum()),
        "uplink_value_bytes": int(replies.uplink_value_bytes.sum()),
        "downlink_bytes": plan.model_bytes * selection.clients.size,
        "probe_bytes": plan.probe.bytes + SCALAR_BYTES * len(replies.reports) * came.size,
        "calibration_bytes": calibration_bytes,
        "exchanges": int(came.size),
    }


def with_costs(row: dict[str, Any], costs: Mapping[str, float], search: Mapping[str, Any]) -> dict[str, Any]:
    """`row` with an intermediate round's costs added to its entries, and its record as "search"."""
    found = {"search": search} if search else {}
    return row | {entry: row[entry] + cost for entry, cost in costs.items()} | found
