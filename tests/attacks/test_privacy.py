"""Differential privacy that counts wrong: killed and resumed runs, and settings for which it is not proven."""

import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from fedsel_app.config import ConfigError
from fedsel_app.records.releases import ReleaseFile
from fedsel_app.records.run_folder import RunFolder
from fedsel_app.wiring.configuration import resolve
from simulation.comparison.run_processes import FEDSEL
from simulation.experiments.run_folders import read_summary
from strategies import STRATEGIES, Selection, SelectionStrategy, run_round
from strategies.methods.random_selection import RandomSelection
from tests.bench import epsilon
from tests.support.documentation import PAGES
from tests.support.in_process import run_config
from tests.support.rounds import written

pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="needs opacus")

PRIVATE = {"strategy": "random", "dp-clip-norm": 1.0, "weighting": "uniform"}
SMALL = PRIVATE | {"clients": 4, "cohort": 2, "local-steps": 1, "rounds": 6, "checkpoint-every": 2}
DELTA = 1e-5


class Killed(BaseException):
    """The process is no more."""


def killed(monkeypatch, folder, owner, name, call, settings=SMALL, on_fit=None, *, after=False):
    """A run whose process ends at the `call`-th call of `owner.name`: before it begins, or after it has returned."""
    whole, calls = getattr(owner, name), []

    def killing(*arguments, **keywords):
        calls.append(name)
        if len(calls) == call and not after:
            raise Killed
        result = whole(*arguments, **keywords)
        if len(calls) == call:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killing)
        with pytest.raises(Killed):
            run_config(folder, resolve(settings), on_fit)


# Where the process is killed -> releases of 6 rounds with a checkpoint every 2, counted by hand, and models that left.
KILLS = {
    "before the selection of round 5": ((RandomSelection, "select", 5), {}, 6, 6),
    "after round 5 was sent": ((run_round, "aggregate", 5), {}, 6, 6),
    "after the aggregation of round 5, before it counts": ((ReleaseFile, "add", 5), {}, 6, 6),
    "after round 5 was counted": ((ReleaseFile, "add", 5), {"after": True}, 7, 6),
    "before the record of round 5": ((RunFolder, "round", 5), {}, 7, 6),
    "before the record of round 6": ((RunFolder, "round", 6), {}, 8, 7),
    "before the checkpoint of round 4": ((RunFolder, "checkpoint", 2), {}, 8, 7),
    "after the checkpoint of round 4": ((RunFolder, "checkpoint", 2), {"after": True}, 6, 6),
}


@pytest.mark.parametrize("phase", KILLS)
def test_a_killed_and_resumed_run_tells_the_epsilon_of_what_was_released(phase, tmp_path, monkeypatch):
    (owner, name, call), when, releases, left = KILLS[phase]
    models = set()

    def on_fit(client, message, reply):
        models.add(message.model.tensors[0])
        return reply

    killed(monkeypatch, tmp_path, owner, name, call, SMALL, on_fit, **when)
    run_config(tmp_path, resolve(SMALL | {"resume": True}), on_fit)
    models.add((tmp_path / "model.npz").read_bytes())
    assert len(models) - 1 == left, "all models that clients received but the initial one, and the final one"
    assert (tmp_path / "releases.jsonl").read_bytes().count(b"\n") == releases
    assert read_summary(tmp_path)["final_epsilon"] == pytest.approx(
        epsilon.of_opacus(epsilon.Setting(1.0, releases, DELTA)), rel=1e-9
    )


def test_a_run_that_was_killed_after_its_release_tells_what_left(tmp_path, monkeypatch):
    settings = SMALL | {"rounds": 10, "checkpoint-every": 5}
    killed(monkeypatch, tmp_path, RunFolder, "round", 9, settings, after=True)
    _, rows = run_config(tmp_path, resolve(settings | {"resume": True}))
    assert rows[-1]["epsilon"] == pytest.approx(23.73, abs=0.005)
    assert epsilon.of_opacus(epsilon.Setting(1.0, 10, DELTA)) == pytest.approx(19.05, abs=0.005)


def test_a_round_without_updates_after_the_kill_hides_no_release(tmp_path, monkeypatch):
    killed(monkeypatch, tmp_path, RunFolder, "round", 6)
    _, rows = run_config(
        tmp_path, resolve(SMALL | {"resume": True}), lambda client, message, reply: replace(reply, tensors=[])
    )
    assert [row["aggregated"] for row in rows[4:]] == [[], []]
    assert read_summary(tmp_path)["final_epsilon"] == pytest.approx(
        epsilon.of_opacus(epsilon.Setting(1.0, 6, DELTA)), rel=1e-9
    )


def test_a_line_that_was_cut_short_counts(tmp_path):
    releases = ReleaseFile(tmp_path)
    releases.add()
    with (tmp_path / "releases.jsonl").open("ab") as file:
        file.write(b'{"version"')
    again = ReleaseFile(tmp_path)
    assert again.count == 2
    again.add()
    assert ReleaseFile(tmp_path).count == again.count == 3


def test_a_run_whose_releases_are_gone_is_not_resumed(tmp_path, monkeypatch):
    killed(monkeypatch, tmp_path, RunFolder, "round", 6)
    (tmp_path / "releases.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"4 models were released and 0 are on record in releases\.jsonl"):
        run_config(tmp_path, resolve(SMALL | {"resume": True}))


@pytest.mark.slow
@pytest.mark.e2e
def test_a_process_that_is_killed_has_counted_what_it_released(tmp_path):
    folder, rounds = tmp_path / "killed", 60
    values = {key: value for key, value in SMALL.items() if key not in ("strategy", "rounds", "checkpoint-every")}
    settings = [f"--set={key}={value}" for key, value in {**values, "checkpoint-every": 10, "engine": "inline"}.items()]
    command = [*FEDSEL, "run", "--strategy", "random", "--rounds", str(rounds), "--out", str(folder), *settings]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    while written(folder) < 15 and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()[0].decode()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finished = written(folder)
    counted = (folder / "releases.jsonl").read_bytes().count(b"\n")
    assert finished <= counted <= finished + 1
    with np.load(folder / "checkpoint.npz") as saved:
        redone = rounds - int(saved["round"])
    subprocess.run([*FEDSEL, "run", "--resume", str(folder)], check=True, capture_output=True)
    assert read_summary(folder)["final_epsilon"] == pytest.approx(
        epsilon.of_opacus(epsilon.Setting(1.0, counted + redone, DELTA)), rel=1e-9
    )


# Methods and settings for which nothing is proven ----------------------------------------------------------------


class Waits(SelectionStrategy):
    """Looks at nothing that clients send, as the method of the README."""

    name, paper = "waits", "README"

    def select(self, roster, round_info, count, rng):
        order = rng.permutation(roster.ids)
        return Selection(np.sort(order[np.argsort(roster.last_selected[order], kind="stable")][:count]))


@pytest.mark.parametrize("name", [*STRATEGIES, "tests.attacks.test_privacy:Waits"])
def test_only_random_and_full_run_with_differential_privacy(name):
    values = PRIVATE | {"strategy": name}
    if name in ("random", "full"):
        resolve(values)
        return
    with pytest.raises(ConfigError, match=f"Set 'strategy' to random or full .it is {name}"):
        resolve(values)


# Epsilon beside opacus' and Flower's --------------------------------------------------------------------------------


def on_page():
    """(noise multiplier, releases, delta) -> epsilons on the page: fedsel's, opacus', Flower's, opacus' PRV."""
    rows = re.findall(r"^\| ([\d.]+) \| (\d+) \| (\S+) \| (.+) \|$", PAGES["docs/security.md"], re.MULTILINE)
    return {
        epsilon.Setting(float(noise), int(releases), float(delta)): tuple(map(float, told.split(" | ")))
        for noise, releases, delta, told in rows
    }


def test_the_page_has_ten_settings_and_the_libraries_agree_there():
    """Stored: opacus 1.6.0; Flower 1.36.0 with dp-accounting 0.6.0."""
    assert list(on_page()) == epsilon.SETTINGS
    for told, opacus, flower, numerical in on_page().values():
        assert told == opacus == flower
        assert numerical <= told <= 1.2 * numerical


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("of", epsilon.SETTINGS)
def test_epsilon_is_that_of_the_page(of):
    stored = on_page()[of]
    assert epsilon.of_fedsel(of) == pytest.approx(stored[0], abs=5.1e-5)
    assert epsilon.of_opacus(of) == pytest.approx(epsilon.of_fedsel(of), rel=1e-9)
    assert epsilon.of_prv(of) == pytest.approx(stored[3], abs=0.02)
    if find_spec("dp_accounting"):  # Flower's accountant needs it
        assert epsilon.of_flower(of) == pytest.approx(stored[2], rel=1e-3)
