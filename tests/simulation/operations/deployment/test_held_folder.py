"""Folder of a deployment: the folder of temporary files is removed at the end, or at the next start after a kill."""

import stat

import pytest

from fedsel_app.records.fedsel_folder import make_fedsel_folder
from simulation.operations.deployment.held_folder import temporary_folder


@pytest.mark.parametrize("killed", [False, True])
def test_a_temporary_folder_is_private_begins_empty_and_is_removed(tmp_path, killed):
    own = tmp_path / "own"
    make_fedsel_folder(own)
    if killed:
        (own / "tmp" / "fedsel-1").mkdir(parents=True)
        (own / "tmp" / "fedsel-1" / "token").write_text("secret")
    with temporary_folder(own) as folder:
        assert folder == own / "tmp"
        assert not list(folder.iterdir())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "fedsel-2").mkdir()
    assert not folder.exists()
