"""ServerApp of a deployment: its calls of the SuperLink wait for replies together.

Private of Flower is `HttpGrid.send_and_receive`, which asks every three seconds, in each thread of its own.
Streaming calls of the Runtime API would replace it.
"""

from flwr.app import Context
from flwr.server import Grid, ServerApp

from simulation.flower_internals.replies import SharedReplies


class DeployedServerApp(ServerApp):
    """A ServerApp whose threads share one call for all the replies that they wait for.

    Attributes
    ----------
    deployed : True while the clients are SuperNodes, and not simulated
    """

    deployed = False

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run the server."""
        from flwr.superlink.grid import HttpGrid

        self.deployed = isinstance(grid, HttpGrid)
        if self.deployed:
            grid.send_and_receive = SharedReplies(grid)  # type: ignore[method-assign]
        super().__call__(grid, context)
