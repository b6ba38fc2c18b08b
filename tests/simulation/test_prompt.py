from queue import Empty, Queue
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from flwr.server.superlink.fleet.vce import vce_api

from simulation.prompt import deliver, prompt_delivery


class State:
    """The two methods of Flower's state that bring a message to a node."""

    def __init__(self):
        self.messages = []

    def store_message_ins(self, message):
        self.messages.append(message)
        return "stored"

    def get_message_ins(self, node_id, limit):
        mine = [message for message in self.messages if message.metadata.dst_node_id == node_id][:limit]
        self.messages = [message for message in self.messages if message not in mine]
        return mine


def addressed_to(node, number=0):
    return SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node), number=number)


def test_every_message_is_delivered_once_those_from_before_too():
    state, queue, stop = State(), Queue(), Event()
    early = [addressed_to(3), addressed_to(3, 1)]
    for message in early:
        state.store_message_ins(message)
    thread = Thread(target=deliver, args=(state, queue, dict.fromkeys(range(10)), stop))
    thread.start()
    try:
        assert [queue.get(timeout=60) for _ in early] == early
        late = [addressed_to(7), addressed_to(3, 2), addressed_to(7, 1)]
        assert [state.store_message_ins(message) for message in late] == ["stored"] * 3
        assert sorted(queue.get(timeout=60).number for _ in late) == [0, 1, 2]
        with pytest.raises(Empty):
            queue.get(timeout=0.2)
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


def test_the_engine_delivers_so_for_as_long_as_it_is_asked_to():
    flowers = vce_api.add_messages_to_queue
    with prompt_delivery():
        assert vce_api.add_messages_to_queue is deliver
    assert vce_api.add_messages_to_queue is flowers
