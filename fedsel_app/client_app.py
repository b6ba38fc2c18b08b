"""Flower's ClientApp: the client of one message, built from Flower's run and node configuration."""

import sys

from flwr.client import Client, ClientApp
from flwr.common import Context

from simulation.experiments.configuration import resolve_run_config
from simulation.experiments.node_configuration import refuse_choices
from simulation.wiring.client import make_client


def in_simulation() -> bool:
    """True in a worker of Flower's simulation, which is one of Ray's; no message of a server can bring that about."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def client_fn(context: Context) -> Client:
    """Build the client; its node configuration takes precedence over the run's.

    Raises ConfigError where the server chooses paths or code. A simulation's settings are those of the machine's user.
    """
    if not in_simulation():
        refuse_choices(context.run_config, context.node_config)
    return make_client(resolve_run_config(context.run_config, context.node_config), context)


app = ClientApp(client_fn=client_fn)
