"""Client proxies of a user's Flower app: the round speaks its own protocol to them, and they the user's to clients."""

from collections.abc import Callable
from typing import TypeVar

from flwr.common import Code, EvaluateIns, EvaluateRes, FitIns, FitRes, GetPropertiesIns, GetPropertiesRes
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.criterion import Criterion

from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.flower_app.app_clients import AppClients
from strategies.round.passing_proxy import PassingProxy
from strategies.round.timeout_proxy import NodeError, TimeoutProxy

R = TypeVar("R", GetPropertiesRes, FitRes, EvaluateRes)


class AppClientProxy(PassingProxy):
    """Client proxy in front of one of Flower's, `origin`, whose messages are in the user's form and end in time."""

    def __init__(self, origin: ClientProxy, timeouts: ReplyTimeout, clients: AppClients) -> None:
        super().__init__(TimeoutProxy(origin, timeouts))
        self.origin, self._clients = origin, clients

    def _noting(self, call: Callable[[], R]) -> R:
        """Make the call, and note its failure. Raises NodeError where it raises."""
        try:
            reply = call()
        except Exception as error:
            self._clients.note_failure(self, error)
            raise NodeError(self.cid, str(error)) from error
        if reply.status.code != Code.OK:
            self._clients.note_failure(self, reply.status.message)
        return reply

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        """Enrol the client."""
        return self._noting(lambda: self._clients.enrol(self.proxy, ins, timeout))

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Let the client train."""
        return self._noting(lambda: self._clients.fit(self.proxy, ins, timeout, group_id))

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """Let the client evaluate."""
        return self._noting(lambda: self._clients.evaluate(self.proxy, ins, timeout, group_id))


class AppClientManager(ClientManager):
    """Client manager whose proxies are `AppClientProxy`, one for each that `manager` has."""

    def __init__(self, clients: AppClients, timeouts: ReplyTimeout) -> None:
        self._clients, self._timeouts = clients, timeouts
        self._proxies: dict[str, AppClientProxy] = {}
        self.manager: ClientManager | None = None

    @property
    def _behind(self) -> ClientManager:
        if self.manager is None:
            raise RuntimeError("The strategy was asked for clients before Flower's server had any.")
        return self.manager

    def all(self) -> dict[str, ClientProxy]:
        """All connected clients."""
        connected = self._behind.all()
        self._clients.identities.update(connected)
        for node, proxy in connected.items():
            if node not in self._proxies or self._proxies[node].origin is not proxy:
                self._proxies[node] = AppClientProxy(proxy, self._timeouts, self._clients)
        return {node: self._proxies[node] for node in connected}

    def num_available(self) -> int:
        """Number of connected clients."""
        return self._behind.num_available()

    def wait_for(self, num_clients: int, timeout: int = 86400) -> bool:
        """Wait until that many clients are connected; true if they are."""
        return self._behind.wait_for(num_clients, timeout)

    def register(self, client: ClientProxy) -> bool:
        """Raise NotImplementedError: Flower registers its clients itself."""
        raise NotImplementedError

    def unregister(self, client: ClientProxy) -> None:
        """Raise NotImplementedError: Flower unregisters its clients itself."""
        raise NotImplementedError

    def sample(
        self, num_clients: int, min_num_clients: int | None = None, criterion: Criterion | None = None
    ) -> list[ClientProxy]:
        """Raise NotImplementedError: the strategy selects."""
        raise NotImplementedError
