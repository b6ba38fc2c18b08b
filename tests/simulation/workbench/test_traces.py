"""Traces of FLASH and FedScale: converted by hand, and files that hold anything else refused."""

import csv
import json
import os
import pickle

import numpy as np
import pytest

from simulation.workbench.cli import main

FLASH = {
    "one": {
        "model": "phone",
        "messages": "\n".join(
            [
                "2020-01-02 00:00:00\tscreen_lock",
                "2020-01-02 00:00:10\tWIFI",
                "2020-01-02 00:00:20\tbattery_charged_on",
                "2020-01-02 00:00:25\t80.0%",
                "2020-01-02 00:00:50\tscreen_unlock",
                "2020-01-02 00:01:00\tscreen_lock",
                "2020-01-02 00:01:30\t4G",
                "2020-01-02 00:01:40\twifi",
            ]
        ),
    },
    "never": {"model": "phone", "messages": "2020-01-02 00:00:00\tscreen_lock\n2020-01-02 00:01:00\tscreen_unlock"},
    # Its trace begins at 30 s and repeats after 40 s: the stay from 60 to 70 s is from 20 to 30 s of each 40.
    "two": {
        "messages": [
            "2020-01-02 00:00:30\tscreen_lock\n",
            "2020-01-02 00:00:40\twifi\n",
            "2020-01-02 00:01:00\tbattery_charged_on\n",
            "2020-01-02 00:01:10\tbattery_charged_off\n",
        ]
    },
}
# FLASH leaves out a device with a line that has no time or no state.
for broken in ("at night\twifi", "2020-01-02 00:02:00"):
    FLASH[broken] = {"model": "phone", "messages": f"{FLASH['one']['messages']}\n{broken}"}
FEDSCALE = {
    1: {"duration": 90, "active": [10, 50], "inactive": [20, 50], "finish_time": 100, "model": "a phone"},
    7: {"duration": 90, "active": [5, 40, 80], "inactive": [40, 60, 130], "finish_time": 100, "model": "a phone"},
    # As in its trace: six days. The last stay has no end; its readers index both lists from the first entry.
    3834: {
        "duration": 211625,
        "active": [12788, 100044, 441193, 518400, 518390],
        "inactive": [65881, 133574, 475099, 518500],
        "finish_time": 518400,
        "model": "CPH1801",
    },
}


def converted(content, folder, out="out.npz", options=()):
    (folder / "in").write_bytes(content)
    assert main(["trace", str(folder / "in"), "--out", str(folder / out), *options]) == 0
    return folder / out


def stays(path):
    arrays = np.load(path, allow_pickle=False)
    pairs = np.stack([arrays["starts"], arrays["ends"]], axis=1)
    return [part.tolist() for part in np.split(pairs, np.cumsum(arrays["devices"])[:-1])], arrays["periods"].tolist()


def test_flash_by_hand(tmp_path, capsys):
    found, periods = stays(converted(json.dumps(FLASH).encode(), tmp_path))
    assert found == [[[20, 50], [60, 90]], [[20, 30]]]
    assert periods == [100, 40]
    assert "2 of 5 devices with 3 stays; they are available 50.0% of the time" in capsys.readouterr().out


@pytest.mark.parametrize(("out", "said"), [("in", "exists"), ("none/out.npz", "cannot be written")])
def test_only_a_new_file_is_written(out, said, tmp_path, capsys):
    content = json.dumps(FLASH)
    (tmp_path / "in").write_text(content)
    assert main(["trace", str(tmp_path / "in"), "--out", str(tmp_path / out)]) == 2
    error = capsys.readouterr().err
    assert "Choose another --out" in error
    assert said in error
    assert (tmp_path / "in").read_text() == content


def test_the_lines_of_a_device_are_read_in_the_order_of_their_times(tmp_path):
    lines = FLASH["one"]["messages"].splitlines()
    mixed = {"one": {"messages": [line + "\n" for line in (*lines[4:], *lines[:4])]}}
    assert stays(converted(json.dumps(mixed).encode(), tmp_path)) == ([[[20, 50], [60, 90]]], [100])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_fedscale_by_hand(protocol, tmp_path):
    found, periods = stays(converted(pickle.dumps(FEDSCALE, protocol), tmp_path))
    # Stays that touch are one, an empty one is none, and none goes beyond the end of the trace.
    assert found == [[[10, 20]], [[5, 60], [80, 100]], [[12788, 65881], [100044, 133574], [441193, 475099]]]
    assert periods == [100, 100, 518400]


def test_fedscales_speeds_by_hand(tmp_path):
    """A forward pass of 10 ms an example: a step of 20 examples takes 3 x 20 x 10 ms. 5,000 kbit/s both ways."""
    speeds = {1: {"computation": 10.0, "communication": 5000.0}}
    table = converted(pickle.dumps(speeds), tmp_path, "speeds.csv", ["--batch-size", "20"])
    assert list(csv.reader(table.open())) == [
        ["uplink_bits_per_s", "downlink_bits_per_s", "step_s"],
        ["5000000.0", "5000000.0", "0.6"],
    ]


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_that_would_run_code_is_refused_and_runs_none(tmp_path, capsys):
    for place, entry in enumerate([Runs(str(tmp_path / "made")), {1: {"active": np.int64(3)}}, np.arange(3)]):
        (tmp_path / "in").write_bytes(pickle.dumps(entry))
        assert main(["trace", str(tmp_path / "in"), "--out", str(tmp_path / f"{place}.npz")]) == 2
        assert "not only numbers and text" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "content",
    [
        *[b"", b"{", b"[]", b"{}", b"\x80", b"\x80\x04.", b"(", b'{"a": 3}', b'{"a": {"messages": 3}}', b"\xff"],
        *[b'{"a": {"messages": "no time\\twifi"}}', b'{"a": {"messages": "2020-01-02 00:00:00\\twifi"}}'],
        *[
            b'{"a": {"active": [1], "inactive": [], "finish_time": 9}}',
            b'{"a": {"computation": 0, "communication": 1}}',
        ],
        pickle.dumps({1: {"computation": float("inf"), "communication": 1.0}}),
        *[b'{"a":' * 10**5, b'{"a": {"active": [], "inactive": [], "finish_time": %d}}' % 10**400],
        b"\x80\x05\x8e" + (1 << 62).to_bytes(8, "little") + b".",
    ],
    ids=lambda content: str(content[:40]),
)
def test_other_files_are_refused(content, tmp_path, capsys):
    (tmp_path / "in").write_bytes(content)
    assert main(["trace", str(tmp_path / "in"), "--out", str(tmp_path / "out.npz")]) == 2
    assert "client_behave_trace" in capsys.readouterr().err
    assert not (tmp_path / "out.npz").exists()
