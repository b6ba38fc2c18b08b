"""The SuperLink's stores: messages are handed out only when they are complete, and runs start only with their files."""

from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.superlink import main

from simulation.operations.guard.superlink import APP, FACTORIES_HOOK, check_files
from tests.support.link_state import Link

pytestmark = pytest.mark.usefixtures("task_identity")


def test_flower_still_has_the_place_where_stores_are_made():
    assert callable(getattr(main, FACTORIES_HOOK))


def test_a_message_is_handed_out_when_all_of_its_objects_are_stored():
    link = Link()
    ask = link.ask(1)
    upload = link.upload(ask, sender=1)
    while next(upload, False):
        found = link.instructions()
    assert found == [ask.metadata.message_id]
    assert link.instructions() == [], "it is handed out once"

    upload = link.upload(Message(RecordDict({"answer": ConfigRecord({"loss": 0.5})}), reply_to=ask), sender=link.node)
    while next(upload, False):
        answered = link.replies(ask)
    assert answered == [ask.metadata.message_id]


def test_an_upload_under_way_holds_up_no_other_message():
    link = Link()
    first, second, third = (link.ask(number) for number in range(3))
    upload = link.upload(first, sender=1)
    assert next(upload)
    for message in (second, third):
        assert all(link.upload(message, sender=1))
    assert link.instructions() == [second.metadata.message_id]
    assert all(upload)
    assert sorted(link.instructions(limit=None)) == sorted(m.metadata.message_id for m in (first, third))
    assert all(link.upload(Message(RecordDict(), reply_to=second), sender=link.node))
    late = link.upload(Message(RecordDict({"answer": ConfigRecord({"loss": 0.5})}), reply_to=third), sender=link.node)
    assert next(late)
    assert link.replies(second, third) == [second.metadata.message_id]
    assert all(late)
    assert link.replies(third) == [third.metadata.message_id]


def test_a_message_whose_sender_has_died_is_handed_out_as_flower_does(monkeypatch):
    """The SuperLink then reports its objects as missing, so a node that pulls them gets an error at once."""
    link = Link()
    ask = link.ask(1)
    assert next(link.upload(ask, sender=1))
    assert link.instructions() == []
    date, core = import_module("flwr.supercore.date"), import_module("flwr.supercore.corestate.in_memory_corestate")
    later = date.now() + timedelta(seconds=181)
    for session in link.state._object_push_sessions.values():
        session.expires_at -= timedelta(seconds=181)
    monkeypatch.setattr(core, "now", lambda: later)
    assert link.instructions() == [ask.metadata.message_id]
    assert [link.state.get_object(link.run_id, part.object_id) for part in [get_object_tree(ask)]] == [None]


def test_a_run_whose_settings_name_a_missing_file_or_module_is_refused_before_its_server_starts(tmp_path):
    state = SimpleNamespace(create_run=lambda *_, **named: named["series_id"])
    check_files(state)
    (tmp_path / "config.json").write_text('{"model": "mlp"}')
    for settings, words in (
        ({"initial-model": str(tmp_path / "gone.npz")}, "On the server: .*gone.npz cannot be read"),
        ({"initial-model": str(tmp_path), "model": "logistic"}, "Set 'model' to mlp"),
        ({"strategy": "gone.rule:Rule", "data": "hf:digits"}, "names 'gone.rule:Rule', but .* has no module 'gone'"),
    ):
        with pytest.raises(FlowerError, match=words):
            state.create_run(APP, "1", "", settings, series_id=7)
        assert state.create_run("their/app", "1", "", settings, series_id=7) == 7, "its settings mean something else"
    assert state.create_run(APP, "1", "", {"rounds": 3}, series_id=7) == 7
