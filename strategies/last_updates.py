"""Last updates: the server keeps the last update of each client, for methods that use it."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fedsel_app.wire.codec import Update, decode, encode
from strategies.checkpoint import Arrays
from strategies.roster import Outcome


class LastUpdates(Mapping[int, Update]):
    """Client id -> its last aggregated update.

    Parameters
    ----------
    part : returns the part of an update to keep, such as one layer; None: keep the whole update
    """

    def __init__(self, part: Callable[[Update], Update] | None = None) -> None:
        self._part = part
        self._updates: dict[int, Update] = {}

    def __getitem__(self, client: int) -> Update:
        return self._updates[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._updates)

    def __len__(self) -> int:
        return len(self._updates)

    def add(self, outcome: Outcome) -> None:
        """Keep the updates of a round's outcome, which replace earlier ones of the same clients."""
        parts = map(self._part, outcome.updates) if self._part else outcome.updates
        self._updates |= dict(zip(outcome.clients.tolist(), parts, strict=True))

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
        packets = [
            decode(payloads[start:end].tobytes(), size=size) for start, end in zip([0, *ends][:-1], ends, strict=True)
        ]
        self._updates = {packet.client: packet.update for packet in packets}
        if list(self._updates) != state["clients"].tolist():
            raise ValueError("payloads of other clients")
