"""Addresses of a SuperLink, for each transport of Flower's releases."""

import pytest

from simulation.operations.guard import transport
from simulation.operations.guard.transport import ANYWHERE, Endpoints

FLEET, CONTROL = ["--fleet-api-address", "0.0.0.0:9092"], ["--control-api-address", "127.0.0.1:9093"]
CLOSED, OPEN = ["--host", "127.0.0.1", "--port", "8000"], ["--host", "0.0.0.0", "--port", "8000"]


@pytest.mark.parametrize(
    ("control_over_grpc", "fleet_over_grpc", "arguments", "fleet_port", "control_port"),
    [
        pytest.param(True, True, [*FLEET, *CONTROL, *CLOSED], 9092, 9093, id="1.36"),
        pytest.param(False, True, [*FLEET, *CLOSED], 9092, 8000, id="1.37"),
        pytest.param(False, False, OPEN, 8000, 8000, id="1.40"),
    ],
)
def test_what_is_served_over_http_shares_an_address(
    monkeypatch, control_over_grpc, fleet_over_grpc, arguments, fleet_port, control_port
):
    monkeypatch.setattr(transport, "CONTROL_OVER_GRPC", control_over_grpc)
    monkeypatch.setattr(transport, "FLEET_OVER_GRPC", fleet_over_grpc)
    at = Endpoints(host=ANYWHERE)
    assert at.arguments == arguments
    assert (at.fleet_port, at.control_port) == (fleet_port, control_port)
    assert at.ports == {fleet_port, control_port, 8000}
