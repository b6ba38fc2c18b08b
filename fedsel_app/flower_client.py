"""Flower's ClientApp for fedsel's own clients, built from Flower's run and node configuration."""

import sys

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from clients.flower_client import answer
from simulation.experiments.configuration import resolve_run_config
from simulation.experiments.node_configuration import refuse_choices
from simulation.wiring.client import client_of

app = ClientApp()


@app.query()
@app.train()
@app.evaluate()
def answer_message(message: Message, context: Context) -> Message:
    """Answer a message of fedsel's server. The node configuration takes precedence over the run configuration.

    Raises ConfigError if the server sets paths or code. In a simulation the machine's user has made all settings.
    """
    if not in_simulation():
        refuse_choices(context.run_config, context.node_config)
    config = resolve_run_config(context.run_config, context.node_config)
    return answer(message, client_of(config, context))


def in_simulation() -> bool:
    """True in a worker of Flower's simulation, which is a Ray worker. A server's message cannot change the result."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
