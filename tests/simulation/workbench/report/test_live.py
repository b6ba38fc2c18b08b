"""`fedsel watch --html`: one page on loopback, from the files of runs that go on."""

import http.client
import json
import re
import threading
import time

import pytest

from simulation.workbench.cli import main
from simulation.workbench.report import live
from tests.support.report_runs import write_plan, write_run


@pytest.fixture
def watched(monkeypatch, capsys):
    """Start `fedsel watch --html` on a folder; its address. The end waits until it has noticed that all runs ended."""
    monkeypatch.setattr(live, "REFRESH_S", 0.05)
    threads = []

    def start(folder):
        threads.append(threading.Thread(target=main, args=[["watch", str(folder), "--html"]]))
        threads[-1].start()
        printed, deadline = "", time.monotonic() + 60.0
        while not (found := re.search(r"http://(127\.0\.0\.1):(\d+)(/\S+)", printed)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
            printed += capsys.readouterr().out
        return found.groups()

    yield start
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    assert "All runs have ended." in capsys.readouterr().out


def get(address, path=None, **headers):
    host, port, own_path = address
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", path or own_path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def get_until(address, text):
    deadline = time.monotonic() + 60.0
    while text not in (page := get(address)[1]):
        assert time.monotonic() < deadline, page
        time.sleep(0.05)
    return page


def test_the_page_of_a_run_follows_its_files_and_serves_nothing_else(tmp_path, watched):
    """What files say is text on it, never markup."""
    folder = tmp_path / "<i>run"
    failure = {"client": 3, "reason": "<script>alert(1)</script>"}
    write_run(folder, "oort", 1, [0.25, 0.5], finished=False, row={"failures": [failure]})
    address = watched(folder)
    status, page, headers = get(address)
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert 'points="50.00,100.00 100.00,0.00"' in page
    assert "oort <strong>0.5000</strong>" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;i&gt;run" in page
    assert "<i>" not in page
    assert "<script>alert" not in page
    for path in ("/", "/../x", f"{address[2]}/../config.json", "/etc/passwd"):
        assert get(address, path)[0] == 404
    for name in ("evil.example", "127.0.0.1.evil.example", ""):
        assert get(address, Host=name)[0] == 403
    assert get(address, Host="localhost:8000")[0] == 200  # through a tunnel
    line = (folder / "rounds.jsonl").read_text().splitlines()[-1]
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(json.loads(line) | {"accuracy": 0.75}) + "\n")
    get_until(address, "oort <strong>0.7500</strong>")
    (folder / "rounds.jsonl").write_text("no record\n")
    get_until(address, "cannot be read")
    (folder / "rounds.jsonl").write_text(line + "\n")
    (folder / "summary.json").write_text("{}")
    assert 'data-ended="yes"' in get_until(address, "1 of 1 runs ended")


def test_the_page_of_a_tuning_counts_the_trials_that_are_to_come(tmp_path, watched):
    """Each cell of the comparison after them has a picture of its own; a run whose process failed says why."""
    plan = {"version": 2, "strategies": ["oort"], "trials": 3, "tuning_seeds": [7], "over": {}}
    (tmp_path / "tuning.json").write_text(json.dumps(plan))
    [trial] = write_plan(tmp_path / "trials", [("oort", 7, {"trial": 1})])
    write_run(trial, "oort", 7, [0.5, 0.5])
    address = watched(tmp_path)
    page = get_until(address, "1 of 2 runs ended; about 1 s left")
    assert "the comparison of tuned methods" in page
    tuned, failed = write_plan(tmp_path, [("oort", 1, {"settings": "tuned"}), ("random", 1, {"settings": "tuned"})])
    reason = {"name": failed.name, "exit_code": 1, "message": "no memory"}
    (tmp_path / "failures.jsonl").write_text(json.dumps(reason) + "\n")
    write_run(tuned, "oort", 1, [0.5, 0.625])
    page = get_until(address, "3 of 3 runs ended, 1 failed")
    assert "no memory" in page
    assert "trial=1: accuracy" in page
    assert "settings=tuned: accuracy" in page
