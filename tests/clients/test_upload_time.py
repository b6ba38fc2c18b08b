"""The bytes and seconds of the last upload, from the SuperNode's file."""

import pytest

from clients.upload_time import UPLOAD_FILE, last_upload


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
