"""Simulation engine of Flower, with event-driven delivery, a timeout for every answer, and restart of dead workers.

- `vce_api.add_messages_to_queue` polls ten times a second. `deliver_when_stored` replaces it.
- `vce_api.run_api` raises if Ray does not start, while the server continues to wait. Here the run ends.
- `RayBackend.process_message` waits for an answer without a timeout, and keeps a dead worker in its pool. `WorkerWatch`
  replaces it.
- `BasicActorPool.terminate_all_actors` ends a worker by a task that never returns, which Ray reports as a failure. Here
  Ray itself ends it, without a message.
- Ray aborts this process at SIGTERM, with a dump of its stack. From `RayBackend.build` on SIGTERM raises SystemExit.

`watched_engine` makes these replacements. Flower passes the options `RESTARTS` on to Ray. An engine that waits for
events and replaces its workers would replace this file.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from threading import Event
from typing import Any

import ray
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
from flwr.server.superlink.fleet.vce.vce_api import NodeToPartitionMapping
from flwr.server.superlink.linkstate import LinkState
from flwr.simulation.ray_transport.ray_actor import BasicActorPool
from ray.exceptions import ActorDiedError

from fedsel_app.messages.records import clients_named
from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.engines.this_process import exit_with

LOGGER = logging.getLogger("fedsel")
STOP_POLL_S = 0.1
"""Seconds between two checks whether the engine stops."""
START_S = 300.0
"""Least seconds that a worker has for its first answer: it must start and import."""
NODE_LOOK_S = 5.0
"""Seconds between two checks whether a node of Ray is alive, during a wait for an answer."""
NO_NODE = "Ray's raylet was killed, or is frozen"
RESTARTS = {"max_restarts": 10, "max_task_retries": 1}
"""Ray restarts a dead worker up to 10 times and repeats its message once. A repeated message gets the same answer, so
nothing in the run changes. If a message ends two workers, its client has failed."""


def deliver_when_stored(
    state: LinkState, queue: Queue[Message], nodes_mapping: NodeToPartitionMapping, f_stop: Event
) -> None:
    """Put each message for a client into `queue` as soon as `state` has it, until `f_stop` is set.

    Flower asks for every node's next message ten times a second, and the state searches all messages for each node. At
    K = 100 that takes a third of a core.
    """
    addressed: Queue[int] = Queue()
    store = state.store_message_ins

    def store_message_ins(message: Message) -> str | None:
        stored = store(message)
        addressed.put(message.metadata.dst_node_id)
        return stored

    state.store_message_ins = store_message_ins  # type: ignore[method-assign]
    for node_id in nodes_mapping:  # messages stored before the replacement
        addressed.put(node_id)
    while not f_stop.is_set():
        try:
            node_id = addressed.get(timeout=STOP_POLL_S)
        except Empty:
            continue
        for message in state.get_message_ins(node_id=node_id, limit=None):
            queue.put(message)


class WorkerWatch:
    """Watch over the workers of a run: a client whose message is not answered in time has failed.

    A worker that does not answer in time is killed and replaced.

    Parameters
    ----------
    timeouts : time limits of the answers
    end : called with the beginning of a sentence if the run cannot continue
    """

    def __init__(self, timeouts: ReplyTimeout, end: Callable[[str], None]) -> None:
        self._timeouts = timeouts
        self.end = end
        self._ready = set[Any]()
        """Workers that have answered at least once."""

    def process_message(self, backend: RayBackend, message: Message, context: Context) -> tuple[Message, Context]:
        """Let a worker answer `message`; replaces Flower's method.

        Flower keeps a dead worker in its pool. As that worker fails at once, it gets most messages, and the run ends
        without an error. Here a worker that cannot be restarted ends the run.

        Raises TimeoutError if there is no answer in time, or RayError if the client raises.
        """
        pool: Any = backend.pool
        client, kind = context.node_config["partition-id"], message.metadata.message_type
        others = len(clients_named(message.content)[1:])
        worker = pool.pool.pop()
        limit_s = self._timeouts.longest_wait_s(kind, 1 + others)
        if worker not in self._ready:
            limit_s = max(limit_s, START_S)
        try:
            began_s = time.monotonic()
            answer = worker.run.remote(backend.app_fn, message, str(client), context)
            if not self._answered(answer, limit_s):
                ray.kill(worker)
                worker = pool.create_actor_fn()
                sentence = (
                    f"The message to client {client}{f' and {others} others' if others else ''} was not answered "
                    f"within {limit_s:.0f} s (see 'reply-timeout-s'): its Ray worker is killed and replaced."
                )
                LOGGER.warning(sentence)
                raise TimeoutError(sentence)
            self._ready.add(worker)
            _, reply, updated = ray.get(answer)
            self._timeouts.learn(kind, time.monotonic() - began_s, 1 + others)
            return reply, updated
        except ActorDiedError:
            self.end("A Ray worker died; its memory may not have sufficed" if self._node_alive() else NO_NODE)
            raise
        finally:
            pool.pool.append(worker)

    def _answered(self, answer: Any, limit_s: float) -> bool:
        """Wait up to `limit_s` seconds for an answer; end the run if no node of Ray is alive."""
        deadline_s, look_s = time.monotonic() + limit_s, min(NODE_LOOK_S, limit_s)
        while not ray.wait([answer], timeout=look_s)[0]:
            if not self._node_alive():
                self.end(NO_NODE)
            look_s = min(NODE_LOOK_S, deadline_s - time.monotonic())
            if look_s <= 0.0:
                return False
        return True

    @staticmethod
    def _node_alive() -> bool:
        return any(node["Alive"] for node in ray.nodes())  # type: ignore[no-untyped-call]


@contextmanager
def watched_engine(watch: WorkerWatch) -> Iterator[None]:
    """Replace Flower's functions within the block: `watch` watches the workers, and an engine that fails to start ends
    the run.
    """
    run_api, build = vce_api.run_api, RayBackend.build

    def run_or_end(*arguments: Any, **options: Any) -> None:
        try:
            run_api(*arguments, **options)
        except Exception as error:
            watch.end(f"Ray failed ({str(error.__cause__ or error).strip()})")
            raise

    def build_and_handle_sigterm(backend: RayBackend, app_fn: Callable[[], ClientApp]) -> None:
        build(backend, app_fn)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, exit_with)

    def kill_all_actors(pool: BasicActorPool) -> None:
        for actor in pool.pool:
            ray.kill(actor)  # type: ignore[arg-type]  # a handle, which Flower declares as the actor itself

    replacements: list[tuple[Any, str, Callable[..., Any]]] = [
        (vce_api, "add_messages_to_queue", deliver_when_stored),
        (vce_api, "run_api", run_or_end),
        (RayBackend, "process_message", lambda *arguments: watch.process_message(*arguments)),
        (RayBackend, "build", build_and_handle_sigterm),
        (BasicActorPool, "terminate_all_actors", kill_all_actors),
    ]
    originals = [getattr(owner, name) for owner, name, _ in replacements]
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for (owner, name, _), original in zip(replacements, originals, strict=True):
            setattr(owner, name, original)
