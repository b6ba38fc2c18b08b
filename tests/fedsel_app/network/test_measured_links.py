"""A real deployment over throttled uplinks: the rates that the server measures, and hetero-select's kept fractions."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.deployed_run import app_values, client_nodes
from simulation.operations.deployment.flower_cli import submit_to_flower
from simulation.operations.deployment.local_deployment import Deployment
from simulation.operations.guard.command_lines import CONNECTION
from simulation.operations.guard.transport import free_ports
from tests.support.rounds import read_rows
from tests.support.throttle import Throttle

MBITS = (1.0, 2.0, 5.0)
ROUNDS = 4
LEARNT = 2
"""Rounds before the server knows the links, because a client reports an upload with its next reply."""


def images(folder: Path) -> Path:
    """Images of 16 x 16 pixels, for which cnn4 has 582,026 parameters: 2.3 MB, 3.7 s at 5 Mb/s."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 192), ("test", 48)):
        arrays[f"x_{part}"] = rng.standard_normal((count, 1, 16, 16)).astype(np.float32)
        arrays[f"y_{part}"] = np.arange(count) % 10
    np.savez(folder / "images.npz", **arrays)
    return folder / "images.npz"


@pytest.mark.slow
@pytest.mark.e2e
def test_throttled_uplinks_are_measured_within_15_percent_and_cap_what_hetero_select_keeps(tmp_path: Path) -> None:
    """All clients would send everything (kept fraction 1), so only the link's cap decides: B_k / B, at most 1.

    B is the median of the links that clients report, which no single client moves. At 1, 2 and 5 Mb/s the caps are 1/2,
    1 and 1.
    """
    config = resolve(
        {"strategy": "hetero-select", "model": "cnn4", "data": "npz", "data-path": str(images(tmp_path))}
        | {"partition": "iid", "links": "measured", "rounds": ROUNDS, "clients": 3, "cohort": 3, "local-steps": 2}
        | {"kept-fraction": 1.0, "kept-cosine": 0.0, "kept-warmup-rounds": 0, "allocation": "uniform"}
        | {"out": str(tmp_path / "run")}
    )
    nodes = client_nodes(config, tmp_path / "state")
    with ExitStack() as stack:
        throttles = [
            stack.enter_context(Throttle(rate * 1e6, port, lambda: deployment.fleet))
            for rate, port in zip(MBITS, free_ports(3), strict=True)
        ]
        deployment = Deployment(tmp_path / "p", nodes, detours=[throttle.address for throttle in throttles])
        stack.enter_context(deployment)
        lines: list[str] = []
        result = submit_to_flower(
            app_folder(), CONNECTION, app_values(config), deployment.flwr_home, None, lines.append
        )
    assert result.completed, "\n".join(lines)
    rows = read_rows(tmp_path / "run")
    assert [row["aggregated"] for row in rows] == [[0, 1, 2]] * ROUNDS

    measured = np.array([row["uplink_bits_per_s"] for row in rows[LEARNT:]]) / 1e6
    kept = np.array([row["kept_fractions"] for row in rows])
    print(f"Measured Mb/s by round: {measured.round(3).tolist()}; kept: {kept.round(3).tolist()}")
    assert measured[-1].tolist() == pytest.approx(MBITS, rel=0.15)
    # While no link is known, all links count as equal, and no client is capped.
    assert (kept[:LEARNT] == 1.0).all()
    for rates, fractions in zip(measured, kept[LEARNT:], strict=True):
        assert fractions.tolist() == pytest.approx([min(1.0, rate / np.median(rates)) for rate in rates])
    assert kept[-1].tolist() == pytest.approx([0.5, 1.0, 1.0], rel=0.15)
    # A kept value has 32 bits, and its index less than one.
    values_bytes = 4 * 582_026 * kept.sum(axis=1)
    sent_bytes = np.array([row["uplink_bytes"] for row in rows])
    assert (values_bytes <= sent_bytes).all()
    assert (sent_bytes <= 33 / 32 * values_bytes + 1_000).all()
