"""Runs in one process end with the bits of the table. `tests/runs/test_same_bits.py` has the other ways to run."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bits.cases import CASES, OWN_APPS
from tests.bits.table import COMMAND, Bits, Table, case_bits, differences, machine, read_table, run_bits

KEPT = read_table()
NAMES = [*CASES, *OWN_APPS]
SLOW = (
    "rule/",
    "participation/isp ",
    "compression/",
    "calibration/",
    "round/",
    "task/",
    "aggregation/server-optimizer",
)
CHANGED = (
    "{name} ends with other {others} than the table. The table is of {kept}, and this machine is {here}. If the change "
    f"is meant to move them, write the table anew: {COMMAND}"
)


def test_the_table_has_every_case_and_no_other():
    assert set(KEPT.cases) == set(NAMES), f"Write the table anew: {COMMAND}"


def test_a_new_field_of_a_record_moves_nothing(tmp_path: Path) -> None:
    model = {"weight": np.ones(3, np.float32)}
    row: dict[str, object] = {"round": 1, "selected": [2, 0], "failures": [], "loss": 0.5}

    def found(changed: dict[str, object], model: dict[str, np.ndarray] = model) -> Bits:
        (tmp_path / "rounds.jsonl").write_text(json.dumps(row | changed) + "\n", encoding="utf-8")
        return run_bits(tmp_path, model)

    before = found({})
    assert found({"a_new_field": 1, "wall_s": 2.0}) == before
    for part, other in {
        "choices": found({"selected": [0, 2]}),
        "numbers": found({"loss": 0.25}),
        "model": found({}, {"weight": np.ones(3)}),
    }.items():
        assert other == before._replace(**{part: getattr(other, part)}) != before


def test_on_another_machine_only_choices_are_compared() -> None:
    kept, found = Bits("a", "b", "c"), Bits("A", "B", "C")
    here, there = machine(), machine() | {"torch's CPU capability": "another"}
    assert differences("case", found, Table(here, {"case": kept})) == ["choices", "numbers", "model"]
    assert differences("case", found, Table(there, {"case": kept})) == ["choices"]
    assert differences("case", kept, Table(here, {"case": kept})) == []
    assert differences("case", kept, Table(here, {})) == ["choices", "numbers", "model"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name.startswith(SLOW) else []) for name in NAMES]
)
def test_a_run_in_one_process(name: str, tmp_path: Path) -> None:
    others = differences(name, case_bits(name, tmp_path), KEPT)
    assert not others, CHANGED.format(name=name, others=", ".join(others), kept=KEPT.machine, here=machine())
