"""Bounds of single entries: a few clients cannot move an entry further than other clients have moved it lately.

A vote needs voters: of an entry that few clients send, such as the weights of a pixel that is dark in honest images,
the centre is a mean, and a backdoor comes in there. So the server keeps, for each entry, the largest sizes that f + 1
different clients have sent of it, each fading by `FADING` a round, and cuts every value down to the least of them: f
hostile clients count there for what a client beside them has sent, and for nothing where none has. It is a trimmed
mean's idea over rounds, in sizes in place of values.

All sizes fade at the same rate and grow only when a client sends an entry. So the server need not keep the sizes of all
K clients: the state is the (f + 1) N largest sizes and their ids. A value that is cut is not given back to its client,
as an outvoted value is not.
"""

from collections.abc import Sequence

import numpy as np

from fedsel_app.wire.codec import Update
from strategies.checkpoint import Saved
from strategies.roster import Ints

FADING = 0.95
"""Share of a size that is left a round later."""


class EntryBounds(Saved):
    """Bounds of the entries of updates of `size` entries, against `malicious` hostile clients."""

    state_fields = ("_sizes", "_senders")

    def __init__(self, size: int, malicious: int) -> None:
        self._sizes = np.zeros((malicious + 1, size), np.float32)
        """Descending along the first axis; 0 where fewer clients sent something."""
        self._senders = np.full((malicious + 1, size), -1, np.int32)

    def bound(self, clients: Ints, updates: Sequence[Update]) -> tuple[Update, ...]:
        """Learn the sizes of a round's updates, one of each of `clients`, and cut their values down to the bounds."""
        self._sizes *= np.float32(FADING)
        for client, update in zip(clients.tolist(), updates, strict=True):
            self._learn(client, update)
        return tuple(self._cut(update) for update in updates)

    def copy(self) -> "EntryBounds":
        """Bounds that are learnt from here on by themselves."""
        copied = EntryBounds(0, 0)
        copied._sizes, copied._senders = self._sizes.copy(), self._senders.copy()
        return copied

    def _learn(self, client: int, update: Update) -> None:
        places = slice(None) if update.indices is None else update.indices
        sizes, senders = self._sizes[:, places], self._senders[:, places]
        own = senders == client
        size = np.maximum(np.abs(update.values), np.where(own, sizes, 0.0).max(axis=0))
        sizes = np.concatenate([np.where(own, 0.0, sizes), size[None]])
        senders = np.concatenate([np.where(own, -1, senders), np.full((1, size.size), client, np.int32)])
        order = np.argsort(-sizes, axis=0, kind="stable")[:-1]
        self._sizes[:, places] = np.take_along_axis(sizes, order, axis=0)
        self._senders[:, places] = np.take_along_axis(senders, order, axis=0)

    def _cut(self, update: Update) -> Update:
        bounds = self._sizes[-1] if update.indices is None else self._sizes[-1][update.indices]
        return Update(update.size, update.indices, np.clip(update.values, -bounds, bounds))
