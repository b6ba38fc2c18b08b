"""Differential privacy that counts wrong: killed and resumed runs, and settings for which it is not proven."""

import json
import math
import os
import re
import signal
import subprocess
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from fedsel_app.config import ConfigError, PrivacyConfig
from fedsel_app.records.run_folder import ReleaseFile, Releases, RunFolder
from fedsel_app.wiring.configuration import resolve
from simulation.engines.run_folders import read_summary
from simulation.workbench.cli import main
from simulation.workbench.comparison.run_processes import FEDSEL
from strategies import run_round
from strategies.aggregation.privacy import Privacy
from strategies.methods.random_selection import RandomSelection
from tests.support.documentation import PAGES
from tests.support.in_process import run_config
from tests.support.rounds import written

PRIVATE = {"strategy": "random", "dp-clip-norm": 1.0, "weighting": "uniform"}
SMALL = PRIVATE | {"clients": 4, "cohort": 2, "local-steps": 1, "rounds": 6, "checkpoint-every": 2}


def integrated_epsilon(noise, releases, delta=1e-5):
    """Epsilon at which E_q[(p/q - exp(epsilon))+] = delta: densities p with a client, and q without it."""
    mu = math.sqrt(releases) / noise
    x = np.linspace(-12.0, mu + 12.0, 400_001)

    def excess(epsilon):
        with_client, without = np.exp(-((x - mu) ** 2) / 2), np.exp(epsilon - x**2 / 2)
        return np.trapezoid(np.maximum(with_client - without, 0.0), x) / math.sqrt(2 * math.pi) - delta

    return brentq(excess, 0.0, 100.0, rtol=1e-12)


def private(noise, count=0, delta=1e-5):
    releases = Releases()
    releases.count = count
    return Privacy(PrivacyConfig(dp_clip_norm=1.0, dp_noise_multiplier=noise, dp_delta=delta), releases)


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
    assert read_summary(tmp_path)["final_epsilon"] == pytest.approx(integrated_epsilon(1.0, releases))


def test_a_run_that_was_killed_after_its_release_tells_what_left(tmp_path, monkeypatch):
    settings = SMALL | {"rounds": 10, "checkpoint-every": 5}
    killed(monkeypatch, tmp_path, RunFolder, "round", 9, settings, after=True)
    _, rows = run_config(tmp_path, resolve(settings | {"resume": True}))
    assert rows[-1]["epsilon"] == pytest.approx(22.2931, abs=5e-5)


def test_a_round_without_updates_after_the_kill_hides_no_release(tmp_path, monkeypatch):
    killed(monkeypatch, tmp_path, RunFolder, "round", 6)
    _, rows = run_config(
        tmp_path, resolve(SMALL | {"resume": True}), lambda client, message, reply: replace(reply, tensors=[])
    )
    assert [row["aggregated"] for row in rows[4:]] == [[], []]
    assert read_summary(tmp_path)["final_epsilon"] == pytest.approx(integrated_epsilon(1.0, 6))


def test_a_line_that_was_cut_short_counts(tmp_path):
    releases = ReleaseFile(tmp_path)
    releases.add(1.5)
    assert json.loads((tmp_path / "releases.jsonl").read_bytes()) == {
        "version": 3,
        "release": 1,
        "noise_multiplier": 1.5,
    }
    with (tmp_path / "releases.jsonl").open("ab") as file:
        file.write(b'{"version"')
    again = ReleaseFile(tmp_path)
    assert again.count == 2
    again.add(1.5)
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
    assert read_summary(folder)["final_epsilon"] == pytest.approx(integrated_epsilon(1.0, counted + redone))


# What leaves a private run beside its models ----------------------------------------------------------------------


def test_a_private_run_goes_on_from_a_model_whose_epsilon_it_does_not_count(tmp_path, capsys):
    """Scores of the server's own test set are those of a released model."""
    run_config(tmp_path / "first", resolve(SMALL))
    file = str(tmp_path / "first.safetensors")
    assert main(["model", str(tmp_path / "first"), "--out", file]) == 0
    second = resolve(SMALL | {"initial-model": file, "score": "f1-macro", "metrics": "mcc"})
    _, rows = run_config(tmp_path / "second", second)
    assert rows[-1].keys() >= {"f1_macro", "epsilon"}
    assert "Add the epsilon of the run that trained the 'initial-model'" in capsys.readouterr().err


# Epsilon beside opacus' --------------------------------------------------------------------------------------------

OF_PAGE = [
    tuple(map(float, numbers))
    for numbers in re.findall(r"^\|" + 6 * r" (\d[\d.e-]*) \|" + "$", PAGES["docs/security.md"], re.MULTILINE)
]
"""Noise multiplier, releases and delta; epsilon of fedsel, and of opacus' accountants PRV and RDP (1.6.0)."""


@pytest.mark.parametrize("row", OF_PAGE)
def test_epsilon_is_that_of_the_page(row):
    noise, count, delta, told, prv, rdp = row
    assert private(noise, int(count), delta).epsilon() == pytest.approx(told, abs=5.1e-5)
    assert integrated_epsilon(noise, count, delta) == pytest.approx(told, abs=6e-5)
    assert told < prv < told + 0.02 < rdp


@pytest.mark.parametrize("row", OF_PAGE)
def test_opacus_gives_an_upper_bound(row):
    accountants = pytest.importorskip("opacus.accountants")
    noise, count, delta, told, _, rdp = row
    accountant = accountants.RDPAccountant()
    accountant.history = [(noise, 1.0, int(count))]
    assert accountant.get_epsilon(delta) == pytest.approx(rdp, abs=5.1e-5)
    assert told < rdp < 1.1 * told


@pytest.mark.parametrize("noise", [1e-100, 1e100])
def test_epsilon_is_a_number_for_any_noise_that_a_run_may_have(noise):
    assert private(noise, 10**6).epsilon() == pytest.approx(10**6 / noise**2 / 2)
    for beyond in (noise / 2 if noise < 1.0 else noise * 2, float("nan")):
        with pytest.raises(ConfigError, match="dp-noise-multiplier"):
            private(beyond)


def test_epsilon_is_never_negative():
    assert private(10.0, 1, 0.5).epsilon() == private(1.0, 0).epsilon() == 0.0
