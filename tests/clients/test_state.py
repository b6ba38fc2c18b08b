import numpy as np
import pytest

from clients.state import StateError, StateStore


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_new_client_has_no_state_and_makes_no_folder(tmp_path):
    store = StateStore(tmp_path / "run")
    assert store.load(3, before=7) == {}
    assert not (tmp_path / "run").exists()


def test_what_is_saved_comes_back_bit_for_bit_in_another_store(tmp_path):
    residual = np.array([0.1, -0.0, np.float32(1e-45)], np.float32)
    shares = np.array([0.3, 0.7])
    StateStore(tmp_path / "a" / "b").save(3, 1, {"residual": residual, "shares": shares})
    loaded = StateStore(tmp_path / "a" / "b").load(3, before=2)
    assert set(loaded) == {"residual", "shares"}
    assert loaded["residual"].tobytes() == residual.tobytes()
    assert loaded["shares"].tobytes() == shares.tobytes()


def test_clients_do_not_see_one_another(tmp_path):
    store = StateStore(tmp_path)
    for client in (1, 11, 111):
        store.save(client, 1, {"x": np.array([client])})
    assert [int(store.load(client, before=2)["x"][0]) for client in (111, 1, 11)] == [111, 1, 11]
    assert store.load(2, before=2) == {}


def test_a_round_sent_again_starts_from_the_state_before_it(tmp_path):
    store = StateStore(tmp_path)
    for number in (1, 4, 9):
        store.save(0, number, {"x": np.array([number])})
    assert int(store.load(0, before=10)["x"][0]) == 9
    assert int(store.load(0, before=9)["x"][0]) == 4
    store.save(0, 9, {"x": np.array([90])})
    assert int(store.load(0, before=9)["x"][0]) == 4
    assert int(store.load(0, before=12)["x"][0]) == 90


def test_the_first_round_sent_again_starts_from_nothing(tmp_path):
    store = StateStore(tmp_path)
    store.save(0, 3, {"x": np.zeros(1)})
    assert store.load(0, before=3) == {}


def test_only_the_last_two_rounds_are_kept_and_later_ones_are_forgotten(tmp_path):
    store = StateStore(tmp_path)
    for number in (1, 2, 10, 12):
        store.save(0, number, {"x": np.zeros(1)})
    assert names(tmp_path) == ["client-0-round-10.npz", "client-0-round-12.npz"]
    store.save(0, 11, {"x": np.zeros(1)})
    assert names(tmp_path) == ["client-0-round-10.npz", "client-0-round-11.npz"]


def test_a_state_that_is_no_longer_kept_is_refused(tmp_path):
    store = StateStore(tmp_path)
    for number in (1, 5, 6):
        store.save(0, number, {"x": np.zeros(1)})
    with pytest.raises(StateError, match=r"Client 0 keeps .*\[5, 6\].* before round 3"):
        store.load(0, before=3)
    assert store.load(0, before=1) == {}


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut short"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "client-5-round-2.npz").write_bytes(content)
    with pytest.raises(StateError, match=r"client-5-round-2\.npz cannot be read"):
        StateStore(tmp_path).load(5, before=3)


def test_a_file_cut_short_or_changed_is_named(tmp_path):
    store = StateStore(tmp_path)
    store.save(5, 2, {"residual": np.arange(1000, dtype=np.float32)})
    path = tmp_path / "client-5-round-2.npz"
    whole = path.read_bytes()
    for damaged in (whole[:2000], whole[:2000] + b"\xff" + whole[2001:]):
        path.write_bytes(damaged)
        with pytest.raises(StateError, match="cannot be read"):
            store.load(5, before=3)


def test_pickled_objects_are_not_read(tmp_path):
    np.savez(tmp_path / "client-5-round-2.npz", x=np.array([{}], dtype=object))
    with pytest.raises(StateError, match="cannot be read"):
        StateStore(tmp_path).load(5, before=3)


def test_an_interrupted_write_leaves_the_old_state_and_no_litter(tmp_path, monkeypatch):
    store = StateStore(tmp_path)
    store.save(0, 1, {"x": np.ones(1)})

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(StateError, match=r"Client 0 cannot write .*No space left.*state-dir"):
        store.save(0, 2, {"x": np.zeros(1)})
    assert names(tmp_path) == ["client-0-round-1.npz"]
    assert store.load(0, before=3)["x"].tolist() == [1.0]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="state-dir"):
        StateStore(tmp_path / "file" / "run").save(0, 1, {})
