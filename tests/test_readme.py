"""What the README says is true."""

import re
from pathlib import Path

import pytest

from strategies import STRATEGIES

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_method_table_is_the_registry() -> None:
    table = README.split("<!-- methods:")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `([^`-][^`]*)` \| ([^|]+) \|", table, re.MULTILINE)
    assert [(name, paper.strip()) for name, paper in rows] == [
        (name, method.paper) for name, method in STRATEGIES.items()
    ]


@pytest.mark.parametrize("name", re.findall(r"--preset ([a-z0-9-]+)", README))
def test_named_presets_exist(name: str) -> None:
    assert (Path(__file__).parent.parent / "simulation" / "experiments" / f"{name}.toml").exists()
