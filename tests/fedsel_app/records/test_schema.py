"""Schema of the records: docs/records.md shows it, and records of another version are refused."""

import re
from typing import get_type_hints

import numpy as np
import pytest

from fedsel_app.config import ConfigError
from fedsel_app.records import schema
from fedsel_app.records.run_folder import read_checkpoint, read_rounds
from fedsel_app.records.schema import ClientTestRecord, EnrolmentRecord, IdentityConflict, RoundRecord, Summary
from tests.support.sources import ROOT

RECORDS = (
    RoundRecord,
    schema.Failure,
    schema.SearchRecord,
    EnrolmentRecord,
    IdentityConflict,
    ClientTestRecord,
    Summary,
)


def names(record):
    return set(get_type_hints(record))


@pytest.mark.parametrize("record", RECORDS)
def test_the_page_shows_every_field(record):
    sections = re.split(r"^##+ ", (ROOT / "docs/records.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    [section] = [part for part in sections if part.splitlines()[0].endswith(f"`{record.__name__}`")]
    hints = get_type_hints(record, include_extras=True)
    expected = [f"| `{name}` | {' | '.join(hint.__metadata__)} |" for name, hint in hints.items()]
    assert [line for line in section.splitlines() if line.startswith("| `")] == expected


def test_another_version_is_refused(tmp_path):
    (tmp_path / "rounds.jsonl").write_text('{"version": 2, "round": 1}\n')
    with pytest.raises(ConfigError) as error:
        read_rounds(tmp_path)
    assert str(error.value) == (
        f"The records {tmp_path / 'rounds.jsonl'} cannot be read: they are of version 2, and this fedsel reads "
        "version 3."
    )


@pytest.mark.parametrize(("arrays", "version"), [({}, 1), ({"version": np.array(2)}, 2)])
def test_a_checkpoint_of_another_version_is_refused(tmp_path, arrays, version):
    np.savez(tmp_path / "checkpoint.npz", round=np.array(4), **arrays)
    with pytest.raises(ConfigError, match=rf"is of version {version}, and this fedsel resumes only version 3\. Resume"):
        read_checkpoint(tmp_path)
