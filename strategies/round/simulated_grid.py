"""The nodes that Flower simulates, as a federation of any number of clients.

Flower decides how many nodes a simulation has: two, unless the user sets `num-supernodes`. A node carries all clients
whose ids are congruent to its partition id modulo the number of nodes; a node beyond the clients carries none. One
message asks all clients of a node, because every process of a simulation has their data (see
`clients.flower_client`). A client's id is its own, so no number of a run depends on the number of nodes.

Only the server decides that nodes carry clients. It must do so only for a grid in its own process, which has no
connections: a deployed client answers for itself alone. Such a grid of Flower's is recognised, and tells of each reply
that is stored (`InMemoryGrid`, `LinkState.store_message_res`), so that no one polls for it.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import TypeGuard

from flwr import app
from flwr.serverapp import Grid
from flwr.superlink.grid import InMemoryGrid

from fedsel_app.config import ConfigError
from fedsel_app.messages.answers import PlaceAnswer
from fedsel_app.messages.instructions import PlaceInstruction
from strategies.round.federation import ALL, Answers, Message, NodeError, Until
from strategies.round.flower_grid import Arrivals, FlowerGrid, most_replies


def is_simulated(grid: object) -> TypeGuard[InMemoryGrid]:
    """True for the grid of a simulation. It is in this process, so no client of another process can be behind it."""
    return isinstance(grid, InMemoryGrid)


def arrivals(grid: Grid) -> Arrivals | None:
    """Arrivals of replies in the in-memory grid of a simulation; None for any other grid."""
    if not is_simulated(grid):
        return None
    arrived, store = Arrivals(), grid.state.store_message_res

    def store_message_res(message: app.Message) -> str | None:
        stored = store(message)
        arrived.put(message.metadata.reply_to_message_id)
        return stored

    grid.state.store_message_res = store_message_res  # type: ignore[method-assign]
    return arrived


class SimulatedGrid(FlowerGrid):
    """Federation of the K clients that the nodes of a simulation carry. A client's node is named by the client's id.

    Parameters
    ----------
    clients : clients of the run, K
    pools_training : True if one message may ask several clients to train
    arrived : arrivals of replies; None: the grid is polled
    """

    def __init__(
        self, grid: Grid, clients: int, *, pools_training: bool = True, arrived: Arrivals | None = None
    ) -> None:
        super().__init__(grid, pools_training=pools_training, arrived=arrived)
        self.simulated = True
        self._clients = frozenset(map(str, range(clients)))
        self._carriers: list[int] = []
        """Flower's ids of the nodes, by partition id."""

    def nodes(self) -> Set[str]:
        """The ids of all clients. All nodes of a simulation are connected from its start."""
        return self._clients

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Send the messages, one for all clients of a node, and wait; see `FlowerGrid.ask`.

        Raises ConfigError if a node does not report its partition id.
        """
        if not self._carriers:
            self._carriers = self._places()
        return super().ask([replace(message, client=int(message.node)) for message in messages], until)

    def _places(self) -> list[int]:
        """Flower's ids of the nodes, by partition id."""
        asked = FlowerGrid(self._grid, arrived=self._arrived)
        place, node_of = PlaceInstruction(), dict[int, int]()
        for node, answer in asked.ask([Message(node, place) for node in asked.nodes()]).items():
            if isinstance(answer, NodeError):
                raise ConfigError(f"A simulated node does not start: {answer}")
            node_of[PlaceAnswer.from_config(answer.metrics).partition] = int(node)
        return [node_of[partition] for partition in sorted(node_of)]

    def _pools(self, kind: str) -> bool:
        return kind != "train" or self._pools_training

    def _divided(self, messages: list[Message], kind: str) -> Iterable[list[Message]]:
        carried: dict[int, list[Message]] = {}
        for message in messages:
            carried.setdefault(self._receiver([message]), []).append(message)
        for together in carried.values():
            most = most_replies(together[0]) if kind == "train" else len(together)
            yield from (together[start : start + most] for start in range(0, len(together), most))

    def _receiver(self, part: Sequence[Message]) -> int:
        return self._carriers[int(part[0].node) % len(self._carriers)]

    def _by_name(self, part: Sequence[Message]) -> bool:
        return True
