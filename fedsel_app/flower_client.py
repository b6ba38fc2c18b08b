"""Flower's ClientApp for fedsel's own clients, built from Flower's run and node configuration."""

import sys

from flwr.app import Context, Message, MessageType
from flwr.clientapp import ClientApp

from clients.flower_client import answer
from fedsel_app.caches import of_a_run
from fedsel_app.config import ConfigError
from fedsel_app.wiring.client import client_of
from fedsel_app.wiring.client_settings import settings_of_client

app = ClientApp()


@app.query()
@app.train()
@app.evaluate()
def answer_message(message: Message, context: Context) -> Message:
    """Answer a message of fedsel's server. The node configuration takes precedence over the run configuration.

    In a simulation a node answers for all clients that the message names, and the machine's user has made all settings.
    Elsewhere it answers for itself alone, and ConfigError is raised if the server sets paths or code. That of an
    enrolment names the client, which the server does not know yet.
    """
    simulated = in_simulation()
    with of_a_run(context.run_id):
        try:
            settings = settings_of_client(context.run_config, context.node_config, trusted=simulated)
            return answer(message, client_of(settings, context, pooled=simulated))
        except ConfigError as error:
            if message.metadata.message_type != MessageType.QUERY or "partition-id" not in context.node_config:
                raise
            raise ConfigError(f"Client {context.node_config['partition-id']}: {error.told}") from error


def in_simulation() -> bool:
    """True in a worker of Flower's simulation, which is a Ray worker. A server's message cannot change the result."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
