"""fedsel's ServerApp: the federation behind Flower's grid, and what Flower logs of an exception."""

import io
import logging
from pathlib import Path
from typing import Any

import pytest
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from fedsel_app.config import ConfigError
from fedsel_app.server_app import SentenceAlone, federation_of
from fedsel_app.wiring.configuration import resolve
from strategies.round.flower_grid import FlowerGrid
from strategies.round.simulated_grid import SimulatedGrid
from tests.support.in_process_grid import grid_of

NOTICE = "Exit Code: 201\n\nFor more information, visit: <https://example.org>"


@pytest.mark.parametrize("kind", [ConfigError, ValueError])
def test_only_the_sentence_of_a_config_error_is_logged(kind: type[Exception]) -> None:
    written = io.StringIO()
    logger = logging.Logger("flower")
    logger.addHandler(logging.StreamHandler(written))
    logger.addFilter(SentenceAlone())
    try:
        raise kind("Only 2 of 3 clients connected.")
    except kind as error:
        logger.error("%s raised an exception", "ServerApp", exc_info=error)
    logger.error(NOTICE)
    logger.warning("Later.")
    if kind is ConfigError:
        assert written.getvalue() == "Only 2 of 3 clients connected.\nLater.\n"
    else:
        assert written.getvalue().startswith("ServerApp raised an exception\nTraceback")
        assert written.getvalue().endswith(f"{NOTICE}\nLater.\n")


def in_memory() -> InMemoryGrid:
    return InMemoryGrid(LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()))


def test_only_the_grid_of_this_process_has_nodes_that_carry_clients(tmp_path: Path) -> None:
    config = resolve({"out": str(tmp_path / "run")})
    simulated = federation_of(in_memory(), config)
    assert isinstance(simulated, SimulatedGrid)
    assert simulated.nodes() == {str(client) for client in range(20)}
    deployed = federation_of(grid_of(config, nodes=2), config)
    assert type(deployed) is FlowerGrid
    assert not deployed.simulated
    assert deployed.nodes() == {"1", "2"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 2, "client-gpus": 0.5}, "leave 'workers' and 'client-gpus' out"),
        ({"engine": "inline"}, "leave 'engine' out"),
        ({"node-keys": True}, "simulated nodes have no keys"),
        ({"strategy": "random", "waiting": "buffered", "links": "measured"}, "Set 'links' to simulated, or 'waiting'"),
    ],
)
def test_what_a_simulation_cannot_have_is_refused_before_anyone_is_asked(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    config = resolve(settings | {"out": str(tmp_path / "run")})
    with pytest.raises(ConfigError, match=said):
        federation_of(in_memory(), config)
    assert type(federation_of(grid_of(config, nodes=2), config)) is FlowerGrid
