"""ServerApp of a deployment: its calls of the SuperLink wait for replies together, and go through a socket.

Private of Flower are `HttpGrid.send_and_receive`, which asks every three seconds, in each thread of its own, and the
grid's client, which makes each call of the Runtime API over HTTP, and for which `SocketRuntime` stands in where it can.
The log goes over HTTP too: `flwr.supercore.logger.LOG_UPLOAD_INTERVAL` is set to a second in place of five times a
second. Streaming calls of the Runtime API would replace all of it.
"""

import os
from typing import Any, cast

from flwr.app import Context
from flwr.server import Grid, ServerApp

from simulation.flower_internals.replies import SharedReplies
from simulation.flower_internals.runtime_socket import SOCKET, SocketRuntime

LOG_HOOK, LOG_UPLOAD_S = "LOG_UPLOAD_INTERVAL", 1.0


class DeployedServerApp(ServerApp):
    """A ServerApp whose threads share one call for all the replies that they wait for, on the SuperLink's socket.

    Attributes
    ----------
    deployed : True while the clients are SuperNodes, and not simulated
    """

    deployed = False

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run the server."""
        from flwr.supercore import logger
        from flwr.superlink.grid import HttpGrid

        self.deployed = isinstance(grid, HttpGrid)
        if not isinstance(grid, HttpGrid):
            super().__call__(grid, context)
            return
        setattr(logger, LOG_HOOK, LOG_UPLOAD_S)
        grid.send_and_receive = SharedReplies(grid)  # type: ignore[method-assign]
        over_http = grid._runtime_client
        if SOCKET in os.environ:
            grid._client = cast(Any, SocketRuntime(grid._token, over_http))
        try:
            super().__call__(grid, context)
        finally:
            grid._client = over_http
