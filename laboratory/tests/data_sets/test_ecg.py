"""PTB-XL from miniature WFDB files, and generated records: each label changes the signal as in cardiology."""

import csv
import sys

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load
from laboratory.data_sets import ecg
from laboratory.data_sets.ptb_xl import LABELS

PTB_XL = "laboratory.data_sets.ptb_xl:load"
NAMES = ["I", "II", "III", "AVR", "AVL", "AVF", "V1", "V2", "V3", "V4", "V5", "V6"]
ROWS = [
    {"ecg_id": "1", "site": "4.0", "scp_codes": "{'NORM': 100.0, 'SR': 0.0}", "strat_fold": "3"},
    {"ecg_id": "2", "site": "", "scp_codes": "{'AFIB': 0.0, 'LAFB': 80.0}", "strat_fold": "10"},
    {"ecg_id": "3", "site": "", "scp_codes": "{'CRBBB': 100.0, '1AVB': 50.0}", "strat_fold": "9"},
    {"ecg_id": "4", "site": "0.0", "scp_codes": "{'PVC': 100.0, 'ILBBB': 100.0, 'CLBBB': 0.0}", "strat_fold": "1"},
]


def path_of(row, hz=100):
    return f"records{hz}/00000/{int(row['ecg_id']):05d}_{'lr' if hz == 100 else 'hr'}"


def write_record(folder, row, microvolts, names=NAMES, hz=100):
    """Format 16, as PhysioNet's files: little-endian 16-bit, one sample of every lead after the other, 1000 per mV."""
    path = folder / path_of(row, hz)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".dat").write_bytes(microvolts.T.astype("<i2").tobytes())
    lines = [f"{path.name} 12 {hz} {microvolts.shape[1]}"]
    lines += [
        f"{path.name}.dat 16 1000.0(0)/mV 16 0 {lead[0]} 0 0 {name}"
        for lead, name in zip(microvolts, names, strict=True)
    ]
    path.with_suffix(".hea").write_text("\n".join(lines) + "\n")


def write_ptb_xl(folder, rows=ROWS, hz=100):
    with (folder / "ptbxl_database.csv").open("w", newline="") as file:
        columns = ["ecg_id", "report", "scp_codes", "site", "strat_fold", "filename_lr", "filename_hr"]
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(
            {**row, "report": 'said "a, b"\nc', "filename_lr": path_of(row), "filename_hr": path_of(row, 500)}
            for row in rows
        )
    rng = np.random.default_rng(0)
    signals = rng.integers(-3000, 3000, size=(len(rows), 12, 10 * hz))
    for row, signal in zip(rows, signals, strict=True):
        write_record(folder, row, signal, hz=hz)
    return signals


def ptb_xl(folder):
    return load(DataConfig(data=PTB_XL, data_path=str(folder)), 0)


def test_ptb_xl(tmp_path):
    pytest.importorskip("wfdb")
    signals = write_ptb_xl(tmp_path)
    write_record(tmp_path, ROWS[3], signals[3][::-1], NAMES[::-1])
    made = ptb_xl(tmp_path)
    assert (made.sample_shape, made.classes, made.task) == ((12, 1000), 6, "multi-label")
    assert made.x_train.dtype == made.y_train.dtype == np.float32
    np.testing.assert_allclose(made.x_train, signals[[0, 2, 3]] / 1000, atol=1e-6)
    np.testing.assert_allclose(made.x_test, signals[[1]] / 1000, atol=1e-6)
    assert made.mean.shape == (12,)  # each lead by itself
    held = [{label for label, one in zip(LABELS, row, strict=True) if one} for row in made.y_train]
    assert held == [set(), {"CRBBB", "1AVB"}, {"PVC", "CLBBB"}]
    assert [LABELS[label] for label in np.flatnonzero(made.y_test[0])] == ["AFIB", "LAFB"]
    assert made.owners is not None
    assert made.owners.tolist() == [1, 2, 0]  # sites 0 and 4, and none


def test_ptb_xl_at_500_hz(tmp_path):
    pytest.importorskip("wfdb")
    signals = write_ptb_xl(tmp_path, hz=500)
    made = load(DataConfig(data=PTB_XL, data_path=str(tmp_path), data_arguments="hz=500"), 0)
    assert made.sample_shape == (12, 5000)
    np.testing.assert_allclose(made.x_train, signals[[0, 2, 3]] / 1000, atol=1e-6)
    with pytest.raises(ConfigError, match=r"'hz' parameter must be 100 or 500\. Got 250"):
        load(DataConfig(data=PTB_XL, data_path=str(tmp_path), data_arguments="hz=250"), 0)


def test_ptb_xl_absent_or_damaged(tmp_path, monkeypatch):
    pytest.importorskip("wfdb")
    with pytest.raises(ConfigError, match=rf"'ptb-xl' is absent from '{tmp_path}': put PhysioNet's files.*records100"):
        ptb_xl(tmp_path)
    signals = write_ptb_xl(tmp_path)
    header, samples = (tmp_path / f"{path_of(ROWS[2])}.{suffix}" for suffix in ("hea", "dat"))
    for damaged, content in (
        (samples, samples.read_bytes()[:5000]),
        (header, header.read_bytes().replace(b"AVF", b"X")),
    ):
        whole = damaged.read_bytes()
        damaged.write_bytes(content)
        with pytest.raises(ConfigError, match=r"record '.*00003_lr' \(.hea and .dat\) is absent or damaged.*PhysioNet"):
            ptb_xl(tmp_path)
        damaged.write_bytes(whole)
    write_record(tmp_path, ROWS[2], signals[2][:, :900])
    with pytest.raises(ConfigError, match=r"00003_lr' must have 1000 finite samples a lead. Got 900"):
        ptb_xl(tmp_path)
    write_ptb_xl(tmp_path, [ROWS[0], ROWS[2]])
    with pytest.raises(ConfigError, match=r"ptbxl_database\.csv' must have records in strat_fold 10 and in others"):
        ptb_xl(tmp_path)
    monkeypatch.setitem(sys.modules, "wfdb", None)
    with pytest.raises(ConfigError, match=r"needs the package wfdb: pip install wfdb"):
        ptb_xl(tmp_path)


@pytest.fixture(scope="module")
def records():
    return ecg.generate(400, 0.25, seed=5)


def only(made, *labels):
    """The training records with these labels and no other."""
    wanted = np.isin(LABELS, labels).astype(np.float32)
    return made["x_train"][(made["y_train"] == wanted).all(axis=1)].astype(np.float64)


def r_peaks(record):
    """Positions of the R waves: the leads together are larger there than at any other sample within 250 ms."""
    energy = np.square(record).sum(axis=0)
    padded = np.pad(energy, 25)
    around = np.lib.stride_tricks.sliding_window_view(padded, 51).max(axis=1)
    return np.flatnonzero((energy == around) & (energy > 0.25 * energy.max()))


def around_peak(made, labels, name, first_ms, last_ms):
    """Mean of one lead over records and beats, from `first_ms` to `last_ms` after the peak, 10 ms per sample."""
    lead = NAMES.index(name)
    first, last = first_ms // 10, last_ms // 10
    beats = [
        record[lead, peak + first : peak + last + 1]
        for record in only(made, *labels)
        for peak in r_peaks(record)
        if peak + first >= 0 and peak + last < 1000
    ]
    return np.mean(beats, axis=0)


def test_generated_shapes_and_prevalence(records):
    assert records["x_train"].shape == (400, 12, 1000)
    assert records["x_test"].shape == (100, 12, 1000)
    assert {records[key].dtype for key in ("x_train", "x_test", "y_train", "y_test")} == {np.dtype(np.float32)}
    y = np.concatenate([records["y_train"], records["y_test"]])
    rates = dict(zip(LABELS, y.mean(axis=0), strict=True))
    # Stated prevalences (four binomial standard deviations of 500), and the two exclusions.
    expected = {"AFIB": 0.2, "PVC": 0.15, "CLBBB": 0.1, "CRBBB": 0.1 * 0.9, "LAFB": 0.2, "1AVB": 0.15 * 0.8}
    assert rates == pytest.approx(expected, abs=4 * 0.4 / np.sqrt(500))
    place = LABELS.index
    assert not (y[:, place("CLBBB")] * y[:, place("CRBBB")]).any()
    assert not (y[:, place("AFIB")] * y[:, place("1AVB")]).any()
    assert (y.sum(axis=1) >= 2).any()
    assert (y.sum(axis=1) == 0).mean() > 0.25


def test_a_record_depends_only_on_the_seed_and_its_position():
    few, many = ecg.generate(3, 0.2, seed=5), ecg.generate(8, 0.2, seed=5)
    assert np.array_equal(few["x_train"], many["x_train"][:3])
    assert not np.array_equal(few["x_train"], ecg.generate(3, 0.2, seed=6)["x_train"])
    made = load(DataConfig(data="laboratory.data_sets.ecg:load", data_arguments="examples=10"), 5)
    assert (made.task, made.classes, made.sample_shape) == ("multi-label", 6, (12, 1000))
    assert (len(made.x_train), len(made.x_test)) == (10, 2)


def test_bundle_branch_blocks_and_the_anterior_fascicular_block(records):
    def at(labels, lead, ms):
        return around_peak(records, labels, lead, ms, ms)[0]

    # Right block: late R' in V1, late S in I and V6.
    assert at((), "V1", 60) < 0.1
    assert at(("CRBBB",), "V1", 60) > 0.5
    assert at(("CRBBB",), "I", 60) < -0.2
    # Left block: a broad R in V6 and S in V1 (high still 50 ms from the peak), T against the QRS.
    assert abs(at((), "V6", 40)) < 0.2
    assert around_peak(records, ("CLBBB",), "V6", -40, 40).min() > 0.4
    assert around_peak(records, ("CLBBB",), "V1", -40, 40).max() < -0.4
    assert at((), "V6", 280) > 0.1
    assert at(("CLBBB",), "V6", 250) < -0.1
    # Anterior fascicular block: left axis, so R in I and S in II and aVF.
    assert at((), "II", 0) > 0.6
    assert at(("LAFB",), "II", 0) < -0.3
    assert at(("LAFB",), "AVF", 0) < -0.3
    assert at(("LAFB",), "I", 0) > 0.3
