"""Rounds of a strategy under Flower's own server loop, and their rows."""

from flwr.common import parameters_to_ndarrays
from flwr.server import Server

from tests.support.proxies import manager_of


def run_round(strategy, proxies):
    """The row of a run of one round, and the final model's arrays."""
    return run_rounds(strategy, manager_of(proxies), 1)


def run_rounds(strategy, manager, rounds):
    """The rows of a run, and the final model's arrays."""
    server = Server(client_manager=manager, strategy=strategy)
    server.fit(rounds, timeout=None)
    return strategy.context.recorder.rows, parameters_to_ndarrays(server.parameters)


def without_wall(rows):
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in rows]


def bits(arrays):
    """Bytes of each array, to compare models exactly."""
    return [array.tobytes() for array in arrays]
