"""Flower's ClientApp for fedsel's own clients, built from Flower's run and node configuration."""

import sys

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from clients.flower_client import answer
from fedsel_app.caches import of_a_run
from fedsel_app.wiring.client import client_of
from fedsel_app.wiring.client_settings import settings_of_client

app = ClientApp()


@app.query()
@app.train()
@app.evaluate()
def answer_message(message: Message, context: Context) -> Message:
    """Answer a message of fedsel's server. The node configuration takes precedence over the run configuration.

    In a simulation a node answers for all clients that the message names, and the machine's user has made all settings.
    Elsewhere it answers for itself alone, and ConfigError is raised if the server sets paths or code.
    """
    simulated = in_simulation()
    with of_a_run(context.run_id):
        settings = settings_of_client(context.run_config, context.node_config, trusted=simulated)
        return answer(message, client_of(settings, context, pooled=simulated))


def in_simulation() -> bool:
    """True in a worker of Flower's simulation, which is a Ray worker. A server's message cannot change the result."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
