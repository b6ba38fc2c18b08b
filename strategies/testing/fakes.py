"""Fakes for a strategy: its run context, a roster, a round's outcome; without data or model."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import NetworkConfig, Settings, Value, read_groups
from fedsel_app.models.layer_slice import LayerSlice
from fedsel_app.network.links import SimulatedLinks
from fedsel_app.records.run_folder import UnkeptRecords
from fedsel_app.wire.codec import Update
from strategies.roster import Floats, Ints, Outcome, RoundInfo, Selection
from strategies.run_context import Evaluation, RunContext

STEADY = NetworkConfig(uplink_min_bits_per_s=3e6, uplink_max_bits_per_s=3e6, step_min_s=0.3, step_max_s=0.3)
"""Links of 3 Mb/s and 0.3 s a step for every client in every round."""


def make_context(
    method: Settings,
    *,
    clients: int = 6,
    size: int = 12,
    classes: int = 2,
    rounds: int = 10,
    cohort: int = 2,
    **settings: Value | Settings,
) -> RunContext:
    """Context of a strategy without data, model or messages.

    The model has two layers. The second has the last `size` // 2 entries (weights, then `classes` biases). `settings`
    are groups by their names in `SharedSettings`, or single settings by their fields' names.
    """
    groups = {name: group for name, group in settings.items() if isinstance(group, Settings)}
    single = {name.replace("_", "-"): value for name, value in settings.items() if not isinstance(value, Settings)}
    values = {"clients": clients, "cohort": cohort, "rounds": rounds} | single
    return RunContext(
        **read_groups(values) | groups,
        method=method,
        initial=np.zeros(size, np.float32),
        buffers=np.zeros(0, np.float32),
        layers=(LayerSlice("body", 0, size - size // 2), LayerSlice("head", size - size // 2, size)),
        classes=classes,
        links=SimulatedLinks(STEADY, clients, seed=0),
        evaluate=lambda parameters, buffers: Evaluation(0.0, 0.0),
        recorder=UnkeptRecords(),
    )


def dense(values: Sequence[float] | Floats) -> Update:
    """Dense update of these values."""
    return Update(len(values), None, np.asarray(values, np.float32))


def outcome(
    round_info: RoundInfo,
    clients: Sequence[int],
    updates: Sequence[Update],
    *,
    local_steps: Sequence[int] | Ints | None = None,
    losses: Sequence[float] | Floats | None = None,
    reports: Mapping[str, Floats] | None = None,
    failed: Sequence[int] = (),
    selection: Selection | None = None,
    parameters: NDArray[np.float32] | None = None,
) -> Outcome:
    """Outcome of a round with `updates` of `clients` (ascending), aggregated with equal weights.

    Without `selection`, these and the `failed` were selected. Without `parameters`, they are all 0. Without
    `local_steps` and `losses`, these are all 1.
    """
    selected = np.union1d(np.asarray(clients, np.int64), np.asarray(failed, np.int64))
    mean = np.mean([update.dense() for update in updates], axis=0, dtype=np.float64) if updates else None
    return Outcome(
        round_info=round_info,
        selection=selection or Selection(selected),
        parameters=np.zeros(0 if mean is None else mean.size, np.float32) if parameters is None else parameters,
        clients=np.asarray(clients, np.int64),
        updates=tuple(updates),
        norms=np.array([update.norm() for update in updates]),
        aggregate=None if mean is None else np.asarray(mean),
        local_steps=np.ones(len(clients), np.int64) if local_steps is None else np.asarray(local_steps, np.int64),
        losses=np.ones(len(clients)) if losses is None else np.asarray(losses, np.float64),
        reports=reports or {},
        failed=np.asarray(failed, np.int64),
    )
