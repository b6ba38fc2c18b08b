"""Passing proxy: one client proxy of Flower in front of another."""

from flwr.common import (
    DisconnectRes,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
    ReconnectIns,
)
from flwr.server.client_proxy import ClientProxy


class PassingProxy(ClientProxy):
    """Client proxy that passes every call on to `proxy`, but for those that a subclass answers otherwise."""

    def __init__(self, proxy: ClientProxy) -> None:
        super().__init__(proxy.cid)
        self.proxy = proxy

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Pass the call on."""
        return self.proxy.fit(ins, timeout, group_id)

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """Pass the call on."""
        return self.proxy.evaluate(ins, timeout, group_id)

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        """Pass the call on."""
        return self.proxy.get_properties(ins, timeout, group_id)

    def get_parameters(self, ins: GetParametersIns, timeout: float | None, group_id: int | None) -> GetParametersRes:
        """Pass the call on."""
        return self.proxy.get_parameters(ins, timeout, group_id)

    def reconnect(self, ins: ReconnectIns, timeout: float | None, group_id: int | None) -> DisconnectRes:
        """Pass the call on."""
        return self.proxy.reconnect(ins, timeout, group_id)
