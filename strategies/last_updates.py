"""Last updates: the server keeps the last update of each client, for methods that use it."""

import numpy as np

from fedsel_app.wire.codec import Update, decode, encode
from strategies.checkpoint import Arrays
from strategies.roster import Outcome


class LastUpdates(dict[int, Update]):
    """Client id -> its last aggregated update."""

    def add(self, outcome: Outcome) -> None:
        """Keep the updates of a round's outcome, which replace earlier ones of the same clients."""
        self.update(zip(outcome.clients.tolist(), outcome.updates, strict=True))

    def state(self) -> Arrays:
        """The wire payloads of the last updates, by ascending client. `ends` has the end of each payload."""
        clients = sorted(self)
        payloads = [encode(self[client], client=client, server_round=0) for client in clients]
        return {
            "size": np.array(self[clients[0]].size if clients else 0),
            "clients": np.array(clients, np.int64),
            "ends": np.cumsum([len(payload) for payload in payloads], dtype=np.int64),
            "payloads": np.frombuffer(b"".join(payloads), np.uint8),
        }

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned. Raises ValueError if a payload is damaged."""
        size, payloads, ends = int(state["size"]), state["payloads"], state["ends"].tolist()
        self.clear()
        for start, end in zip([0, *ends][:-1], ends, strict=True):
            packet = decode(payloads[start:end].tobytes(), size=size)
            self[packet.client] = packet.update
        if list(self) != state["clients"].tolist():
            raise ValueError("payloads of other clients")
