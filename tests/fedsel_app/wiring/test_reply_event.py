from types import SimpleNamespace

from flwr.superlink.grid import InMemoryGrid

from fedsel_app.wiring.reply_event import arrivals


def test_a_stored_reply_is_told_and_still_stored():
    stored = []
    grid = InMemoryGrid.__new__(InMemoryGrid)
    grid.state = SimpleNamespace(store_message_res=lambda message: stored.append(message) or "name")
    arrived = arrivals(grid)
    replies = [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name)) for name in ("one", "other")]
    assert arrived.take(0.0) == set()
    assert [grid.state.store_message_res(reply) for reply in replies] == ["name"] * 2
    assert arrived.take(0.0) == {"one", "other"}
    assert arrived.take(0.0) == set()
    assert stored == replies


def test_a_grid_of_other_machines_tells_nothing():
    assert arrivals(SimpleNamespace()) is None
