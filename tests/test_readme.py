"""What the README says is true."""

import re
import sys
from pathlib import Path

import pytest

from strategies import STRATEGIES, find_strategy
from strategies.contract import check_method
from tests.runs.in_process import run_in_process

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_method_table_is_the_registry() -> None:
    table = README.split("<!-- methods:")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `([^`-][^`]*)` \| ([^|]+) \|", table, re.MULTILINE)
    assert [(name, paper.strip()) for name, paper in rows] == [
        (name, method.paper) for name, method in STRATEGIES.items()
    ]


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


@pytest.mark.parametrize("name", re.findall(r"--preset ([a-z0-9-]+)", README))
def test_named_presets_exist(name: str) -> None:
    assert (Path(__file__).parent.parent / "simulation" / "experiments" / f"{name}.toml").exists()
