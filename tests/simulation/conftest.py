from pathlib import Path

import pytest

from simulation.workbench.report import page
from tests.support.flower_state import task_identity
from tests.support.report_runs import write_comparison

__all__ = ["task_identity"]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `write_comparison` with its report."""
    folder = tmp_path_factory.mktemp("report")
    write_comparison(folder)
    with pytest.MonkeyPatch.context() as coarse:
        coarse.setattr(page, "DOTS", 48)
        page.write_report(folder)
    return folder
