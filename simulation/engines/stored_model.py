"""The model in Ray's object store, which a worker reads once for all messages that carry it.

Every worker imports this module, so it imports little.
"""

from collections.abc import Callable
from typing import Any

import ray
from flwr.app import ArrayRecord, Context, Message

from fedsel_app.messages.records import ARRAYS


class WithModel:
    """Client app with the arrays of a message, which are in Ray's object store.

    Parameters
    ----------
    app_fn : function that loads the client app
    arrays : reference to the record of the arrays
    """

    read: tuple[Any, ArrayRecord] | None = None
    """The last record that this process has read, by its reference."""

    def __init__(self, app_fn: Any, arrays: Any) -> None:
        self._app_fn, self._arrays = app_fn, arrays

    def __call__(self) -> Callable[..., Message]:
        """The app, as Flower's actor calls it."""
        if WithModel.read is None or WithModel.read[0] != self._arrays:
            WithModel.read = self._arrays, ray.get(self._arrays)
        app, record = self._app_fn(), WithModel.read[1]

        def answer(message: Message, context: Context) -> Message:
            message.content[ARRAYS] = record
            reply: Message = app(message=message, context=context)
            return reply

        return answer
