from threading import RLock
from types import SimpleNamespace

from simulation.prompt import answer_idle_nodes_at_once


class State:
    """The two methods of Flower's in-memory state, and which nodes it looked for."""

    def __init__(self):
        self.lock, self.messages, self.looked = RLock(), [], []

    def store_message_ins(self, message):
        self.messages.append(message)
        return "stored"

    def get_message_ins(self, node_id, limit):
        self.looked.append(node_id)
        mine = [message for message in self.messages if message.metadata.dst_node_id == node_id][:limit]
        self.messages = [message for message in self.messages if message not in mine]
        return mine


def addressed_to(node, number=0):
    return SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node), number=number)


def test_every_message_is_delivered_and_idle_nodes_cost_no_look():
    state = State()
    answer_idle_nodes_at_once(state)
    first, second, third = addressed_to(3), addressed_to(3, 1), addressed_to(7)
    assert [state.store_message_ins(message) for message in (first, second, third)] == ["stored"] * 3
    sweeps = [[message for node in range(10) for message in state.get_message_ins(node, 1)] for _ in range(4)]
    assert sweeps == [[first, third], [second], [], []]
    assert state.looked == [3, 7, 3, 7, 3]
    again = addressed_to(7)
    state.store_message_ins(again)
    assert state.get_message_ins(7, 1) == [again]
