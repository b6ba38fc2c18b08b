"""Folder of a deployment: the folder of temporary files is removed at the end, or at the next start after a kill."""

import stat

from simulation.operations.deployment.held_folder import held_folder


def test_a_temporary_folder_is_private_begins_empty_and_is_removed(tmp_path):
    for _ in range(2):
        with held_folder(tmp_path / "own", "") as folder:
            assert folder == tmp_path / "own" / "tmp"
            assert not list(folder.iterdir())
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            (folder / "fedsel-2").mkdir()
        assert not folder.exists()
        (folder / "fedsel-1").mkdir(parents=True)  # as a killed process leaves it
