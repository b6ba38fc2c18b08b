from types import SimpleNamespace

from flwr.superlink.grid import InMemoryGrid

from fedsel_app.wiring.reply_event import reply_event


def test_a_stored_reply_is_told_and_still_stored():
    stored = []
    grid = InMemoryGrid.__new__(InMemoryGrid)
    grid.state = SimpleNamespace(store_message_res=lambda message: stored.append(message) or "name")
    arrived = reply_event(grid)
    assert not arrived.is_set()
    assert grid.state.store_message_res("reply") == "name"
    assert arrived.is_set()
    assert stored == ["reply"]


def test_a_grid_of_other_machines_tells_nothing():
    assert reply_event(SimpleNamespace()) is None
