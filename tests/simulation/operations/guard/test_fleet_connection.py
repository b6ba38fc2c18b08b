"""Refusals by a SuperLink over HTTP raise exceptions in the SuperNode."""

from importlib import import_module
from types import SimpleNamespace

import pytest

from simulation.operations.guard import fleet_connection
from simulation.operations.guard.fleet_connection import (
    CLIENT_HOOK,
    EXIT_HOOK,
    FIRST_CALLS,
    HTTP_CONNECTION,
    RefusedError,
    refuse_by_exceptions,
)
from simulation.operations.guard.transport import FLEET_OVER_GRPC


@pytest.mark.skipif(FLEET_OVER_GRPC, reason="the Fleet API is served over gRPC")
def test_flower_still_has_the_places_where_it_is_refused():
    connection = import_module(HTTP_CONNECTION)
    assert callable(getattr(connection, EXIT_HOOK))
    assert all(callable(getattr(getattr(connection, CLIENT_HOOK), name)) for name in FIRST_CALLS)


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_a_refusal_ends_a_try_and_not_the_process(monkeypatch, capsys, name):
    class Client:
        def RegisterNode(self, request):
            raise request

        def ActivateNode(self, request):
            raise request

    place = SimpleNamespace(FleetHttpClient=Client, flwr_exit=None)
    monkeypatch.setattr(fleet_connection, "FLEET_OVER_GRPC", False)
    monkeypatch.setattr(fleet_connection, "import_module", lambda _: place)
    refuse_by_exceptions()
    call = getattr(place.FleetHttpClient(), name)
    with pytest.raises(RefusedError, match="CERTIFICATE_VERIFY_FAILED"):
        call(ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED]"))
    with pytest.raises(ConnectionError, match="nobody there"):
        call(ConnectionError("nobody there"))
    with pytest.raises(RefusedError, match="2004"):
        place.flwr_exit(1, "[code: 2004] Failed to activate SuperNode")
    assert "Failed to activate SuperNode" in capsys.readouterr().out
