"""Fleet API of a SuperLink: calls for messages are held until there is one.

Flower's handlers answer at once, mostly that there is nothing, and are asked again every three seconds.

Over gRPC, to 1.39, `FleetServicer.PullMessages` is replaced: it learns where nobody waits for its answer any more.
Over HTTP, from 1.40 on, `fleet_handlers.pull_messages` is, which does not: once a message has arrived it answers that
there is nothing, and is asked again, so that a dead SuperNode's call takes no message along. Each call holds a thread,
and `extensions.get_lifespan_contexts` lets the server have as many as gRPC has. Streaming calls would replace it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from simulation.flower_internals.held_calls import Arrivals
from simulation.flower_internals.transport import FLEET_OVER_GRPC

SERVICER = "flwr.server.superlink.fleet.grpc_rere.fleet_servicer"
FLEET_HANDLERS = (
    "flwr.server.superlink.fleet.message_handler.message_handler"
    if FLEET_OVER_GRPC
    else "flwr.superlink.servicer.fleet.fleet_handlers"
)
EXTENSIONS, LIFESPAN_HOOK = "flwr.superlink.extensions", "get_lifespan_contexts"
THREADS = 1_000
"""Threads of the server over HTTP, as many as Flower's gRPC server has."""


def hold_calls_of_nodes(arrivals: Arrivals, hold_s: float) -> None:
    """Hold the SuperNodes' calls for messages, for `hold_s` seconds at most; arrivals are keyed by node id."""
    if FLEET_OVER_GRPC:
        _hold_over_grpc(import_module(SERVICER).FleetServicer, arrivals, hold_s)
    else:
        _hold_over_http(import_module(FLEET_HANDLERS), arrivals, hold_s)
        _allow_threads(import_module(EXTENSIONS))


def _hold_over_grpc(servicer: Any, arrivals: Arrivals, hold_s: float) -> None:
    pull = servicer.PullMessages

    def pull_messages(self: Any, request: Any, context: Any) -> Any:
        with arrivals.watch(("node", request.node.node_id)) as watch:
            context.add_callback(watch.end)
            response = pull(self, request, context)
            if response.messages_list or not watch.wait(hold_s) or not context.is_active():
                return response
        return pull(self, request, context)

    servicer.PullMessages = pull_messages


def _hold_over_http(handlers: Any, arrivals: Arrivals, hold_s: float) -> None:
    pull = handlers.pull_messages

    def pull_messages(request: Any, state: Any, store: Any) -> Any:
        with arrivals.watch(("node", request.node.node_id)) as watch:
            response = pull(request=request, state=state, store=store)
            if not response.messages_list:
                watch.wait(hold_s)
            return response

    handlers.pull_messages = pull_messages


def _allow_threads(extensions: Any) -> None:
    from anyio import to_thread

    others = getattr(extensions, LIFESPAN_HOOK)

    @asynccontextmanager
    async def many_threads(_: Any) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield

    setattr(extensions, LIFESPAN_HOOK, lambda: (*others(), many_threads))
