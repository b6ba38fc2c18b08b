"""Upload times, measured by the SuperNode and reported by the client."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import repeat

import pytest
from flwr.supercore.inflatable import inflatable_utils
from flwr.supernode import start_client_internal

from clients.state import UPLOAD_FILE, last_upload
from simulation.operations.guard import supernode_process as supernode
from simulation.operations.guard.supernode import (
    CONNECTION_HOOK,
    EXIT_HOOK,
    HTTP_CONNECTION,
    PULL_HOOK,
    PUSH_HOOK,
    TIME_HOOK,
    VERIFY_HOOK,
)
from simulation.operations.guard.supernode_process import (
    LONGEST_PAUSE_S,
    SHORTEST_PAUSE_S,
    measuring,
    retrying,
    waiting,
)
from simulation.operations.guard.transport import FLEET_OVER_GRPC


def test_flower_still_has_the_places_that_are_replaced():
    assert getattr(start_client_internal, PUSH_HOOK) is getattr(inflatable_utils, PUSH_HOOK)
    assert callable(getattr(start_client_internal, CONNECTION_HOOK))
    assert callable(getattr(start_client_internal, PULL_HOOK))
    assert callable(getattr(start_client_internal, VERIFY_HOOK))
    assert getattr(start_client_internal, TIME_HOOK) is time


LARGE = bytes(20_000)


class Clock:
    """Time that passes only in `sleep`."""

    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


def one_by_one(contents, push_object_fn):
    for name, content in contents:
        push_object_fn(name, content)


def side_by_side(contents, push_object_fn):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: push_object_fn(*each), contents))


def test_pushes_side_by_side_count_once(tmp_path, monkeypatch):
    monkeypatch.setenv(UPLOAD_FILE, str(tmp_path / "upload.json"))
    push = measuring(side_by_side, tmp_path / "upload.json")
    push([("a", LARGE), ("b", LARGE), ("c", LARGE)], lambda name, content: time.sleep(0.2))
    upload_bytes, seconds = last_upload()
    assert upload_bytes == 60_000
    assert seconds == pytest.approx(0.4, abs=0.15)


def test_what_a_small_push_takes_comes_off_a_large_one(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(supernode, "time", clock)
    monkeypatch.setenv(UPLOAD_FILE, str(tmp_path / "upload.json"))
    push = measuring(one_by_one, tmp_path / "upload.json")
    push([("a", b""), ("b", b"1"), ("c", LARGE)], lambda name, content: clock.sleep(1 + len(content) / 5_000))
    assert last_upload() == (20_000, pytest.approx((1 + 4) - 1))
    # The result is at least half of the measured time.
    push([("a", b""), ("b", LARGE)], lambda name, content: clock.sleep(1 if content else 3))
    assert last_upload() == (20_000, pytest.approx(0.5))


def test_an_upload_is_read_for_the_next_reply(tmp_path, monkeypatch):
    def push_all(contents, push_object_fn, *, most):
        for name, content in contents:
            push_object_fn(name, content)

    monkeypatch.setenv(UPLOAD_FILE, str(tmp_path / "upload.json"))
    assert last_upload() == (0, 0.0)
    pushed = []
    push = measuring(push_all, tmp_path / "upload.json")
    push([("a", LARGE), ("b", b"4")], push_object_fn=lambda name, content: pushed.append(name), most=2)
    assert pushed == ["a", "b"]
    upload_bytes, upload_s = last_upload()
    assert upload_bytes == 20_000
    assert 0.0 < upload_s < 1.0
    push([("c", b"a loss")], push_object_fn=lambda name, content: None, most=2)
    assert last_upload() == (upload_bytes, upload_s), "the answer to a probe is no measurement, and takes none away"


def refusing(times, ended):
    """A connection that is refused `times` times, as by Flower, and then lost. The ended attempts are counted."""
    refusals = repeat(True, times)

    @contextmanager
    def connect(address):
        with suppress(ConnectionError):
            if not next(refusals, False):
                yield address
        ended.append(address)

    return connect


def test_a_supernode_asks_until_it_is_let_in_or_too_late_and_a_lost_connection_is_over(monkeypatch):
    """Flower logs the error of a lost connection and continues after the block. A new one needs a new call."""
    monkeypatch.setattr(supernode, "RETRY_S", 0.0)
    ended = []
    with retrying(refusing(3, ended))("host") as opened:
        assert (opened, ended) == ("host", ["host"] * 3)
        raise ConnectionError
    assert ended == ["host"] * 4
    with pytest.raises(RuntimeError, match="work"), retrying(refusing(0, []))("host"):
        raise RuntimeError("work")
    monkeypatch.setattr(supernode, "CONNECT_TIMEOUT_S", 0.05)
    with pytest.raises(RuntimeError, match="yield"), retrying(refusing(10**9, []))("host"):
        pass


def test_a_supernode_that_is_refused_during_a_run_has_failed(monkeypatch):
    """Flower interrupts its own process, and ends with 0."""

    def serve(**parts):
        os.kill(os.getpid(), 0)
        sys.exit(0)

    monkeypatch.setattr(os, "kill", os.kill)
    monkeypatch.setattr(sys, "argv", ["supernode"])
    monkeypatch.setenv(UPLOAD_FILE, "")
    monkeypatch.setattr(supernode, "serve_messages", serve)
    with pytest.raises(RuntimeError, match="The SuperLink refuses this SuperNode"):
        supernode.main()


@pytest.mark.skipif(FLEET_OVER_GRPC, reason="the Fleet API is served over gRPC")
def test_flower_still_has_the_place_where_it_is_refused():
    assert callable(getattr(import_module(HTTP_CONNECTION), EXIT_HOOK))


def test_a_supernode_waits_for_a_message(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(supernode, "time", clock)
    answers = iter([*[None] * 1000, "message"])
    assert waiting(lambda: next(answers))() == "message"
    assert LONGEST_PAUSE_S * 900 < clock.now_s < LONGEST_PAUSE_S * 1000, "the longer it waits, the less it asks"
    soon = Clock()
    monkeypatch.setattr(supernode, "time", soon)
    answers = iter([None, None, "message"])
    assert waiting(lambda: next(answers))() == "message"
    assert soon.now_s == pytest.approx(2 * SHORTEST_PAUSE_S)
