"""Flower's grid in this process, for the ClientApp of a run. It needs nothing of `simulation`."""

from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fedsel_app.wiring.client import make_client_app
from fedsel_app.wiring.configuration import AppConfig


class InProcessGrid:
    """Flower's grid for a ClientApp in this process, which answers each message when it is pushed."""

    def __init__(self, app, contexts: dict[int, Context]) -> None:
        self._app, self._contexts = app, contexts
        self._replies: dict[str, Any] = {}
        self.pushed: list[Any] = []

    def get_node_ids(self):
        return list(self._contexts)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            number = str(len(self.pushed))
            message.metadata.__dict__["_message_id"] = number
            self.pushed.append(message)
            self._replies[number] = self._answer(message)
            ids.append(number)
        return ids

    def _answer(self, message):
        """The app's answer; its exception becomes an error in the words of Flower's engines."""
        try:
            return self._app(message, self._contexts[message.metadata.dst_node_id])
        except Exception as error:  # noqa: BLE001 - it is the answer
            return Message(Error(code=2, reason=f"{type(error)}:<'{error}'>"), reply_to=message)

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def pull_messages(self, message_ids):
        return [self._replies.pop(number) for number in message_ids if number in self._replies]


def grid_of(config: AppConfig, nodes: int = 0, app: ClientAppCallable | None = None) -> InProcessGrid:
    """A grid of a run's own clients or of an `app`, with a node for each client, or with this number of `nodes`.

    Flower's ids of the nodes descend from the number of nodes to 1.
    """
    nodes = nodes or config.run.clients
    contexts = {
        nodes - place: Context(
            run_id=1,
            node_id=nodes - place,
            node_config={"partition-id": place, "num-partitions": nodes},
            state=RecordDict(),
            run_config={},
        )
        for place in range(nodes)
    }
    return InProcessGrid(app or make_client_app(config, pooled=True), contexts)
