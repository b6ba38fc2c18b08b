"""A real deployment over throttled uplinks: what the server learns of them."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedsel_app.app_config import resolve
from simulation.commands import CONNECTION
from simulation.deploy import Deployment, app_folder, free_ports
from simulation.deployed_run import app_values
from simulation.submit import submit
from tests.simulation.throttle import Throttle

MBITS = (1.0, 2.0, 5.0)


@pytest.mark.slow
@pytest.mark.e2e
def test_throttled_uplinks_are_measured_within_15_percent(tmp_path: Path) -> None:
    """55,210 parameters, sent whole: 221 kB, 1.8 s at 1 Mb/s. The third round knows two uploads of each client."""
    config = resolve(
        {"strategy": "random", "model": "mlp", "compressor": "none", "links": "measured", "rounds": 3, "clients": 3}
        | {"cohort": 3, "local-steps": 2, "out": str(tmp_path / "run"), "state-dir": str(tmp_path / "state")}
    )
    nodes = [f"partition-id={client} num-partitions=3" for client in range(3)]
    with ExitStack() as stack:
        throttles = [
            stack.enter_context(Throttle(rate * 1e6, port, lambda: deployment.fleet))
            for rate, port in zip(MBITS, free_ports(3), strict=True)
        ]
        deployment = Deployment(tmp_path / "p", 3, nodes, detours=[throttle.address for throttle in throttles])
        stack.enter_context(deployment)
        lines: list[str] = []
        result = submit(app_folder(), CONNECTION, app_values(config), deployment.flwr_home, None, lines.append)
    assert result.completed, "\n".join(lines)
    rows = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert [row["aggregated"] for row in rows] == [[0, 1, 2]] * 3
    measured = [rate / 1e6 for rate in rows[-1]["uplink_bits_per_s"]]
    assert measured == pytest.approx(MBITS, rel=0.15)
