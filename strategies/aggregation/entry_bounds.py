"""Bounds of single entries: a few clients cannot move an entry further than other clients have moved it lately.

Few clients send some entries, such as the weights of a pixel that is dark in honest images. The centre of such an entry
is a mean, which a backdoor can use. So for each entry the server keeps the f + 1 largest absolute values that different
clients have sent, and multiplies each by `FADING` every round. It clips every value to the smallest of them. So f
hostile clients cannot exceed the value that another client has sent, and they have no effect if no other client has
sent one. This is the idea of the trimmed mean, applied over rounds to absolute values.

All sizes (absolute values) fade at the same rate, and grow only if a client sends the entry. So the server need not
keep the sizes of all K clients: the state is the (f + 1) N largest sizes and the ids of their clients. The part of a
value that is clipped does not return to its client, nor does an outvoted value.
"""

from collections.abc import Sequence

import numpy as np

from fedsel_app.wire.codec import Update
from strategies.checkpoint import Saved
from strategies.roster import Ints

FADING = 0.95
"""Factor on a size after each round."""


class EntryBounds(Saved):
    """Bounds of the entries of updates of `size` entries, against `malicious` hostile clients."""

    state_fields = ("_sizes", "_senders")

    def __init__(self, size: int, malicious: int) -> None:
        self._sizes = np.zeros((malicious + 1, size), np.float32)
        """Descending along the first axis; 0 if fewer clients have sent the entry."""
        self._senders = np.full((malicious + 1, size), -1, np.int32)

    def bound(self, clients: Ints, updates: Sequence[Update]) -> tuple[Update, ...]:
        """Learn the sizes in a round's updates, one for each of `clients`, and clip their values to the bounds."""
        self._sizes *= np.float32(FADING)
        for client, update in zip(clients.tolist(), updates, strict=True):
            self._learn(client, update)
        return tuple(self._cut(update) for update in updates)

    def _learn(self, client: int, update: Update) -> None:
        places = slice(None) if update.indices is None else update.indices
        sizes, senders = self._sizes[:, places], self._senders[:, places]
        own = senders == client
        size = np.maximum(np.abs(update.values), np.where(own, sizes, 0.0).max(axis=0))
        sizes = np.concatenate([np.where(own, 0.0, sizes), size[None]])
        senders = np.concatenate([senders, np.full((1, size.size), client, np.int32)])
        order = np.argsort(-sizes, axis=0, kind="stable")[:-1]
        self._sizes[:, places] = np.take_along_axis(sizes, order, axis=0)
        self._senders[:, places] = np.take_along_axis(senders, order, axis=0)

    def _cut(self, update: Update) -> Update:
        bounds = self._sizes[-1] if update.indices is None else self._sizes[-1][update.indices]
        return Update(update.size, update.indices, np.clip(update.values, -bounds, bounds))
