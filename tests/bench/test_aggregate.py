"""`python -m tests.bench aggregate`: the bytes that a sum must touch, and its table."""

import json

from fedsel_app.wire.codec import Update
from simulation.bench import codec
from tests.bench import aggregate
from tests.bench.__main__ import main


def test_the_sum_must_touch_every_index_value_and_entry():
    sparse, dense = codec.drawn(1000, 0.2), codec.drawn(1000, 1.0)
    assert isinstance(dense, Update)
    assert dense.indices is None
    # 8 bytes of the sum each way; 200 of 8 bytes and 1000 of 4.
    assert aggregate.touched_bytes(1000, (sparse, dense)) == 16_000 + 1_600 + 4_000


def test_the_bench_writes_its_table(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(aggregate, "SIZE", 3000)
    monkeypatch.setattr(aggregate, "DENSITIES", (0.1, 0.5))
    out = tmp_path / "table.json"
    assert main(["aggregate", "--repeats", "1", "--out", str(out)]) == 0
    assert {row["density"] for row in json.loads(out.read_text(encoding="utf-8"))["rows"]} == {0.1, 0.5}
    assert "N = 3,000" in capsys.readouterr().out
