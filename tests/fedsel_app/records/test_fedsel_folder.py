"""Fedsel's own folders: temporary files of a process that was killed go when the next one starts."""

import stat

from fedsel_app.records.fedsel_folder import make_fedsel_folder, temporary_folder


def test_a_temporary_folder_is_private_and_begins_empty(tmp_path):
    make_fedsel_folder(tmp_path / "own")
    first = temporary_folder(tmp_path / "own")
    (first / "fedsel-1").mkdir()
    (first / "fedsel-1" / "token").write_text("secret")
    again = temporary_folder(tmp_path / "own")
    assert again == first
    assert not list(again.iterdir())
    assert stat.S_IMODE(again.stat().st_mode) == 0o700
