"""`python -m laboratory bench`: its tables and the JSON beside them."""

import json
import math

import pytest

from laboratory.__main__ import main
from laboratory.bench import codec


@pytest.mark.parametrize("density", [0.01, 0.2, 0.3])
@pytest.mark.parametrize(("bits", "value_cost"), [(32, 32.0), (8, 8.125), (4, 4.125)])
def test_a_row_of_the_codec_counts_every_bit(density, bits, value_cost):
    row = codec.measure(200_000, density, bits, 1)
    count = 200_000 * density
    # Header and check sum are 28 bytes; the last block of values may be incomplete.
    assert row["bits_an_entry"] == pytest.approx(row["index_bits"] + value_cost + 8 * 28 / count, abs=40 / count)
    # log2 of the number of ways to choose the places.
    ways = math.lgamma(200_001) - math.lgamma(count + 1) - math.lgamma(200_001 - count)
    assert row["entropy_bits"] == pytest.approx(ways / math.log(2) / count, rel=2e-3)
    assert 0.99 < row["index_over_entropy"] <= 1.05
    assert (row["bytes_over_float32"] == 1) == (bits == 32)
    assert min(row["encode_mb_s"], row["decode_mb_s"]) > 0


def test_a_bench_prints_its_table_and_writes_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(codec, "SIZE", 3000)
    monkeypatch.setattr(codec, "DENSITIES", (0.1, 0.5))
    out = tmp_path / "new" / "table.json"
    assert main(["bench", "codec", "--repeats", "1", "--out", str(out)]) == 0
    table = json.loads(out.read_text(encoding="utf-8"))
    assert table["bench"] == "codec"
    assert {"processor", "cores", "load", "numpy", "torch"} <= table["machine"].keys()
    assert {row["density"] for row in table["rows"]} == {0.1, 0.5}
    printed = capsys.readouterr().out
    assert "N = 3,000" in printed
    assert table["machine"]["numpy"] in printed
