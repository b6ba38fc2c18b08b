"""Calls that the SuperLink holds, and messages announced when they are whole."""

import threading
import time

from flwr.supercore.constant import OBJECT_PUSH_SESSION_TTL_SECONDS

from simulation.flower_internals import held_calls
from simulation.flower_internals.held_calls import Arrivals, Uploads

NODE, OTHER = ("node", 1), ("node", 2)


def test_a_wait_ends_with_the_arrival_at_its_key():
    arrivals = Arrivals()
    with arrivals.watch(NODE) as watch, arrivals.watch(OTHER) as other:
        threading.Timer(0.05, arrivals.announce, [NODE]).start()
        assert watch.wait(60.0)
        assert not other.wait(0.0)
    assert arrivals._watches == {}, "nothing is kept of a call that is over"


def test_an_arrival_between_the_question_and_the_wait_is_not_missed():
    arrivals = Arrivals()
    with arrivals.watch(NODE) as watch:
        arrivals.announce(NODE)
        assert watch.wait(60.0)
    arrivals.announce(NODE)
    with arrivals.watch(NODE) as watch:
        assert not watch.wait(0.01), "an arrival before the question is its answer"


def test_a_caller_that_is_gone_ends_its_wait():
    with Arrivals().watch(NODE) as watch:
        watch.end()
        assert not watch.wait(60.0)


def test_beyond_the_most_no_call_is_held():
    arrivals = Arrivals(most=1)
    with arrivals.watch(NODE) as held, arrivals.watch(NODE) as further:
        thread = threading.Thread(target=held.wait, args=[60.0])
        thread.start()
        while arrivals._slots._value:
            time.sleep(0.001)
        assert not further.wait(60.0)
        held.end()
        thread.join()


def test_a_message_is_announced_with_its_last_object():
    arrivals = Arrivals()
    uploads = Uploads(arrivals)
    with arrivals.watch(NODE) as watch, arrivals.watch(OTHER) as other:
        uploads.begin("session", ["a", "b"], {NODE}, "in two parts")
        uploads.begin("another", [], {OTHER}, "whole")
        assert other.arrived, "all of its objects are stored already"
        uploads.stored("session", "a")
        uploads.stored("unknown", "b")
        assert not watch.arrived
        assert uploads.under_way() == {"in two parts"}
        uploads.stored("session", "b")
        assert watch.arrived
    assert not uploads._open
    assert uploads.under_way() == set()


def test_an_upload_without_a_further_object_is_under_way_no_more(monkeypatch):
    uploads = Uploads(Arrivals())
    uploads.begin("slow", ["a", "b"], {NODE}, "slow")
    uploads.begin("given up", ["c"], {NODE}, "given up")
    monkeypatch.setattr(held_calls, "QUIET_S", 0.05)
    time.sleep(0.1)
    assert uploads.under_way() == set()
    uploads.stored("slow", "a")
    assert uploads.under_way() == {"slow"}


def test_an_upload_is_under_way_until_flower_gives_it_up():
    """A SuperNode that is killed amid its upload would else keep the replies of all others from the ServerApp."""
    assert held_calls.QUIET_S == OBJECT_PUSH_SESSION_TTL_SECONDS
