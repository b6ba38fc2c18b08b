"""Replies for several threads through one call."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from simulation.flower_internals.replies import SharedReplies


class Grid:
    """A grid whose SuperLink answers at once, after `late` empty answers to each message."""

    def __init__(self, late=0, fails=0):
        self.late, self.fails = late, fails
        self.asked = []
        self.busy = threading.Lock()

    def push_messages(self, messages):
        return list(messages)

    def pull_messages(self, names):
        assert self.busy.acquire(blocking=False), "one call at a time"
        try:
            self.asked.append(names)
            time.sleep(0.001)
            if self.fails:
                self.fails -= 1
                raise ConnectionError("gone")
            ready = [name for name in names if sum(name in asked for asked in self.asked) > self.late]
            return [reply(name) for name in ready]
        finally:
            self.busy.release()


def reply(name):
    return SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name))


def names_of(replies):
    return [message.metadata.reply_to_message_id for message in replies]


@pytest.mark.parametrize("late", [0, 3])
def test_every_thread_gets_its_own_replies(late):
    grid = Grid(late)
    send_and_receive = SharedReplies(grid)
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda number: send_and_receive([f"{number}a", f"{number}b"]), range(20)))
    assert [sorted(names_of(replies)) for replies in found] == [[f"{number}a", f"{number}b"] for number in range(20)]
    assert not send_and_receive._missing
    assert not send_and_receive._found


def test_a_timeout_returns_what_there_is_and_forgets_the_rest():
    grid = Grid(late=10**9)
    send_and_receive = SharedReplies(grid)
    began_s = time.monotonic()
    assert send_and_receive(["never"], timeout=0.1) == []
    assert time.monotonic() - began_s < 30
    assert not send_and_receive._missing


def test_a_failed_call_is_the_failure_of_the_thread_that_made_it():
    grid = Grid(fails=1)
    send_and_receive = SharedReplies(grid)
    with pytest.raises(ConnectionError, match="gone"):
        send_and_receive(["a"])
    assert names_of(send_and_receive(["b"])) == ["b"]
