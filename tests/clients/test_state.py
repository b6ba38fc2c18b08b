import numpy as np
import pytest

from clients.state import UPLOAD_FILE, ClientHistory, StateError, StateStore, last_upload, user_state_folder
from fedsel_app.records.files import MachineFault


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def numbers(folder):
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.rglob("round-*"))


def save(store, client, server_round, arrays=None, last_instructed=None, last_aggregated=None, last_checkpoint=0):
    """By default every earlier round was last_instructed for and aggregated, and there is no checkpoint."""
    before = server_round - 1
    history = ClientHistory(
        before if last_instructed is None else last_instructed,
        before if last_aggregated is None else last_aggregated,
        last_checkpoint,
    )
    store.save(client, server_round, {"x": np.array([server_round])} if arrays is None else arrays, history)


def aggregated_state(store, client, last_aggregated, last_instructed=None):
    return store.recall(
        client,
        ClientHistory(
            last_instructed=last_aggregated if last_instructed is None else last_instructed,
            last_aggregated=last_aggregated,
        ),
    )[0]


def test_a_new_client_has_no_state_and_makes_no_folder(tmp_path):
    store = StateStore(tmp_path / "run")
    assert store.recall(3, ClientHistory()) == ({}, {})
    assert not (tmp_path / "run").exists()


def test_what_is_saved_comes_back_bit_for_bit_in_another_store(tmp_path):
    residual = np.array([0.1, -0.0, np.float32(1e-45)], np.float32)
    shares = np.array([0.3, 0.7])
    save(StateStore(tmp_path / "a" / "b"), 3, 1, {"residual": residual, "shares": shares})
    loaded = aggregated_state(StateStore(tmp_path / "a" / "b"), 3, last_aggregated=1)
    assert set(loaded) == {"residual", "shares"}
    assert loaded["residual"].tobytes() == residual.tobytes()
    assert loaded["shares"].tobytes() == shares.tobytes()


def test_runs_do_not_see_one_another(tmp_path):
    save(StateStore(tmp_path).of_run("a1"), 0, 1)
    assert StateStore(tmp_path).of_run("b2").recall(0, ClientHistory()) == ({}, {})
    assert int(aggregated_state(StateStore(tmp_path).of_run("a1"), 0, 1)["x"][0]) == 1


@pytest.mark.parametrize("key", ["", "..", "a/b", "../../etc", "a b", "x" * 65])
def test_a_run_cannot_name_another_folder(tmp_path, key):
    with pytest.raises(ValueError, match="letters and digits"):
        StateStore(tmp_path).of_run(key)


def test_a_lost_reply_is_kept_apart_from_the_last_that_was_aggregated(tmp_path):
    store = StateStore(tmp_path)
    save(store, 0, 1)
    save(store, 0, 4, last_instructed=1, last_aggregated=1)
    save(store, 0, 9, last_instructed=4, last_aggregated=1)
    state, unacknowledged = store.recall(0, ClientHistory(last_instructed=9, last_aggregated=4))
    assert (int(state["x"][0]), int(unacknowledged["x"][0])) == (4, 9)
    state, unacknowledged = store.recall(0, ClientHistory(last_instructed=9, last_aggregated=9))
    assert (int(state["x"][0]), unacknowledged) == (9, {})
    state, unacknowledged = store.recall(0, ClientHistory(last_instructed=1, last_aggregated=0))
    assert (state, int(unacknowledged["x"][0])) == ({}, 1)


def test_rounds_that_the_server_does_not_know_of_are_not_taken_up_and_forgotten(tmp_path):
    """The server went back to round 4: what happened in 5, 7 and 9 never did."""
    store = StateStore(tmp_path)
    for number, before in ((2, 0), (4, 2), (5, 4), (7, 5), (9, 7)):
        save(store, 0, number, last_instructed=before, last_aggregated=before, last_checkpoint=2)
    assert int(aggregated_state(store, 0, last_aggregated=4)["x"][0]) == 4
    save(store, 0, 8, last_instructed=4, last_aggregated=4, last_checkpoint=4)
    assert numbers(tmp_path) == [4, 8]


def test_what_a_server_may_come_back_to_is_kept_and_no_more(tmp_path):
    """Rounds since the checkpoint, and the last before it."""
    store = StateStore(tmp_path)
    for number, before, last_checkpoint in ((1, 0, 0), (3, 1, 0), (6, 3, 5), (8, 6, 5), (12, 8, 10)):
        save(store, 0, number, last_instructed=before, last_aggregated=before, last_checkpoint=last_checkpoint)
        kept = {1: [1], 3: [1, 3], 6: [3, 6], 8: [3, 6, 8], 12: [8, 12]}[number]
        assert numbers(tmp_path) == kept


def test_the_last_that_counted_is_kept_however_old(tmp_path):
    store = StateStore(tmp_path)
    save(store, 0, 1)
    for number in (20, 30, 40):
        before = number - 10 if number > 20 else 1
        save(store, 0, number, last_instructed=before, last_aggregated=1, last_checkpoint=number - 1)
    assert 1 in numbers(tmp_path)
    assert int(aggregated_state(store, 0, last_aggregated=1, last_instructed=40)["x"][0]) == 1


def test_a_state_that_is_no_longer_kept_is_refused(tmp_path):
    store = StateStore(tmp_path)
    save(store, 0, 5, last_checkpoint=4)
    save(store, 0, 6, last_checkpoint=5)
    with pytest.raises(StateError, match=r"Client 0 has .*\[5, 6\].* of round 3 or before"):
        store.recall(0, ClientHistory(last_instructed=3, last_aggregated=3))


def test_a_client_whose_state_is_gone_does_not_go_on_without(tmp_path):
    save(StateStore(tmp_path / "here"), 0, 4)
    for _ in range(2):
        with pytest.raises(StateError, match=r"Client 0 has no state .* round 4 was aggregated.*the same folder"):
            StateStore(tmp_path / "elsewhere").recall(0, ClientHistory(last_instructed=6, last_aggregated=4))
    assert StateStore(tmp_path / "elsewhere").recall(0, ClientHistory(last_instructed=6, last_aggregated=0)) == ({}, {})
    assert names(tmp_path) == ["here"]


def test_a_client_that_lost_its_disk_says_so_once_and_is_taken_back(tmp_path):
    """Of rounds 2 and 5 it has nothing; what it does from round 8 on it keeps."""
    store = StateStore(tmp_path, begins_anew=True).of_run("a1")
    with pytest.raises(StateError, match=r"Client 3 has no state .* round 5 was aggregated\. It starts with an empty"):
        store.recall(3, ClientHistory(last_instructed=5, last_aggregated=5, last_checkpoint=4))
    assert store.recall(3, ClientHistory(last_instructed=7, last_aggregated=5, last_checkpoint=4)) == ({}, {})
    save(store, 3, 8, last_instructed=7, last_aggregated=5, last_checkpoint=4)
    assert int(aggregated_state(store, 3, last_aggregated=8)["x"][0]) == 8


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineFault, match="state-dir"):
        save(StateStore(tmp_path / "file" / "run"), 0, 1, {})


@pytest.mark.parametrize(
    ("named", "folder"), [("/states", "/states/fedsel"), ("relative", "/home/me/.local/state/fedsel")]
)
def test_the_users_states_lie_where_the_xdg_specification_says(monkeypatch, named, folder):
    monkeypatch.setenv("XDG_STATE_HOME", named)
    monkeypatch.setenv("HOME", "/home/me")
    assert str(user_state_folder()) == folder


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"bytes": 2000000, "seconds": 0.25}', (2_000_000, 0.25)),
        ('{"bytes": 1, "seconds": 1e-9}', (1, 1e-9)),
        ('{"bytes": 0, "seconds": 0.25}', (0, 0.0)),
        ('{"bytes": -1, "seconds": 0.25}', (0, 0.0)),
        ('{"bytes": 5, "seconds": 0}', (0, 0.0)),
        ('{"bytes": 5, "seconds": Infinity}', (0, 0.0)),
        ('{"bytes": 5, "seconds": NaN}', (0, 0.0)),
        ('{"bytes": 5}', (0, 0.0)),
        ('{"bytes": 5, "seco', (0, 0.0)),
        ("[]", (0, 0.0)),
    ],
)
def test_a_positive_time_of_a_positive_number_of_bytes_counts(content, found, monkeypatch, tmp_path):
    (tmp_path / "upload.json").write_text(content)
    monkeypatch.setenv(UPLOAD_FILE, str(tmp_path / "upload.json"))
    assert last_upload() == found


def test_without_a_file_there_is_no_time(monkeypatch, tmp_path):
    monkeypatch.delenv(UPLOAD_FILE, raising=False)
    assert last_upload() == (0, 0.0)
    monkeypatch.setenv(UPLOAD_FILE, str(tmp_path / "none.json"))
    assert last_upload() == (0, 0.0)
