"""The method that the README writes runs as it says."""

import re
import sys
from pathlib import Path

import pytest

from strategies import find_strategy
from strategies.testing import check_method
from tests.support.in_process import run_in_process
from tests.test_readme import README


def test_the_example_method_runs_and_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.strip().splitlines()) <= 34
    (tmp_path / "waiting.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    _, rows = run_in_process(
        tmp_path / "run",
        strategy="waiting:LongestWaiting",
        rounds=4,
        clients=8,
        cohort=2,
        **{"waiting.random-share": 0.0},
    )
    check_method(find_strategy("waiting:LongestWaiting"))
    sys.modules.pop("waiting")
    assert sorted(client for row in rows for client in row["selected"]) == list(range(8))
