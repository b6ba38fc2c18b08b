"""Refusals by a SuperLink over HTTP raise exceptions in the SuperNode."""

from importlib import import_module
from types import SimpleNamespace

import pytest

from simulation.operations.guard import fleet_connection
from simulation.operations.guard.fleet_connection import EXIT_HOOK, HTTP_CONNECTION, RefusedError, refuse_by_exceptions
from simulation.operations.guard.transport import FLEET_OVER_GRPC


@pytest.mark.skipif(FLEET_OVER_GRPC, reason="the Fleet API is served over gRPC")
def test_flower_still_has_the_place_where_it_is_refused():
    assert callable(getattr(import_module(HTTP_CONNECTION), EXIT_HOOK))


def test_a_refusal_ends_a_try_and_not_the_process(monkeypatch, capsys):
    place = SimpleNamespace(flwr_exit=None)
    monkeypatch.setattr(fleet_connection, "FLEET_OVER_GRPC", False)
    monkeypatch.setattr(fleet_connection, "import_module", lambda _: place)
    refuse_by_exceptions()
    with pytest.raises(RefusedError, match="2004"):
        place.flwr_exit(1, "[code: 2004] Failed to activate SuperNode")
    assert "Failed to activate SuperNode" in capsys.readouterr().out
