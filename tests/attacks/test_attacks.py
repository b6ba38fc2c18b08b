"""The setting `attack`: each attack by hand, after a restart, and refused by a deployment."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedsel_app.config import ConfigError, SharedSettings
from fedsel_app.config.security import AttackConfig
from fedsel_app.models.poisoning import poisoned
from fedsel_app.wiring.client import client_of
from fedsel_app.wiring.configuration import resolve
from simulation.workbench.cli import main
from strategies.testing.fakes import dense
from tests.support.in_process import run_config, run_until
from tests.support.rounds import assert_same, read_rows
from tests.support.stubs import decoded, update_reply

SENT = {0: [1.0, 4.0], 1: [3.0, 8.0], 2: [2.0, 2.0], 3: [4.0, 6.0]}
"""Updates of four clients. Those of 0 and 1 have the mean (2, 6) and the deviation (1, 2), those of 2 and 3 (3, 4) and
(1, 2).
"""
BY_HAND = [
    ("sign-flip", [-2.0, -2.0], [-4.0, -6.0]),
    ("scaled", [20.0, 20.0], [40.0, 60.0]),
    ("backdoor", [20.0, 20.0], [40.0, 60.0]),
    ("ipm", [-6.0, -18.0], [-6.0, -18.0]),
    ("alie", [1.0, 4.0], [1.0, 4.0]),
    # The two known updates are sqrt(20) apart. The mean is half of that from each, so g = 1 leads to the first.
    ("min-max", [1.0, 4.0], [1.0, 4.0]),
    ("label-flip", SENT[2], SENT[3]),
]
"""Attack of the clients 2 and 3, and what they send."""


def lies(attack, number=1, **settings):
    """Updates of the four clients in a round, as the server decodes them."""
    replies = {client: update_reply(dense(values), client, number) for client, values in SENT.items()}
    settings = {"attackers": "2,3", "attack": attack} | settings
    return [reply.payloads[0] for reply in decoded(replies, range(4), number, 2, **settings).decoded]


@pytest.mark.parametrize(("attack", "third", "fourth"), BY_HAND)
def test_each_attack_by_hand(attack, third, fourth):
    sent = [update.dense().tolist() for update in lies(attack)]
    assert sent[:2] == [SENT[0], SENT[1]]
    np.testing.assert_allclose(sent[2:], [third, fourth], rtol=1e-5)


@pytest.mark.parametrize(("attack", "sent"), [("ipm", [-9.0, -12.0]), ("alie", [2.0, 2.0])])
def test_attackers_may_know_only_what_they_would_send_themselves(attack, sent):
    """Of (2, 2) and (4, 6): -3 times their mean, and their mean minus their deviation."""
    for update in lies(attack, attack_knowledge="own")[2:]:
        np.testing.assert_allclose(update.dense(), sent, rtol=1e-5)


def test_noise_has_the_size_of_the_own_update_and_follows_from_seed_round_and_client():
    [_, _, third, fourth] = lies("random")
    assert third == lies("random")[2] != lies("random", 2)[2]
    assert not np.array_equal(third.values, fourth.values)
    update = np.ones(10_000, np.float32)
    replies = {0: update_reply(dense(update), 0, 1)}
    [reply] = decoded(replies, [0], 1, 10_000, attack="random", attackers="0").decoded
    assert abs(reply.payloads[0].values.mean()) < 0.1
    assert reply.payloads[0].values.std() == pytest.approx(1.0, rel=0.05)


def test_an_attack_has_its_rounds():
    honest = list(SENT.values())
    during = {"attack_from": 2, "attack_until": 3}
    sent = [[update.dense().tolist() for update in lies("sign-flip", number, **during)] for number in (1, 2, 3, 4)]
    assert [updates == honest for updates in sent] == [True, False, False, True]


@pytest.mark.parametrize(
    "given", [{"attackers": "0.04"}, {"attackers": "0", "attack-from": 3, "attack-until": 2}, {"attack-from": 21}]
)
def test_an_attack_in_no_round_is_refused(given):
    """A share of 4% of 12 clients rounds to none of them."""
    with pytest.raises(ConfigError, match="No client attacks in any round: see 'attackers', 'attack-from' and"):
        resolve({"clients": 12, "rounds": 20, "attack": "ipm"} | given)


def test_an_attacker_trains_on_flipped_labels_or_on_images_with_bright_corners():
    x, y = torch.zeros(4, 1, 3, 3), torch.tensor([1, 0, 2, 2])
    bright = torch.full((1, 1, 1), 9.0)
    [(same, flipped)] = poisoned([(x, y)], AttackConfig(attack="label-flip"), 3, bright)
    assert torch.equal(same, x)
    assert flipped.tolist() == [1, 2, 0, 0]
    [(images, labels)] = poisoned([(x, y)], AttackConfig(attack="backdoor"), 3, bright)
    corners = [[9.0, 0.0, 9.0], [0.0, 0.0, 0.0], [9.0, 0.0, 9.0]]
    assert images[:, 0].tolist() == [corners, corners, *x[2:, 0].tolist()]
    assert labels.tolist() == [0, 0, 2, 2]
    assert x.sum() == 0


def test_flipped_labels_are_those_of_a_file_with_flipped_labels(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 1, 4, 4)).astype(np.float32), np.arange(40) % 3
    models = {}
    for name, labels, attack in (("lies", y, "label-flip"), ("file", 2 - y, "none")):
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=labels, x_test=x, y_test=y)
        given = ["data=npz", f"data-path={tmp_path / name}.npz", "partition=iid", f"attack={attack}", "local-steps=3"]
        given += [] if attack == "none" else ["attackers=0,1"]
        words = [word for pair in given for word in ("--set", pair)]
        run = ["--clients", "2", "--cohort", "2", "--rounds", "1", "--engine", "inline", "--out", str(tmp_path / name)]
        assert main(["run", "--strategy", "random", *run, *words]) == 0
        models[name] = (tmp_path / name / "model.npz").read_bytes()
    assert models["lies"] == models["file"]


def settings_of(folder, attack, **others):
    shared = {"strategy": "random", "clients": 6, "cohort": 5, "rounds": 4, "local-steps": 3, "attackers": "0.4"}
    return shared | {"attack": attack, "out": str(folder), "checkpoint-every": 1} | others


@pytest.mark.parametrize("attack", ["backdoor", "random", "alie"])
def test_a_killed_run_goes_on_with_the_same_attacks(tmp_path, attack):
    run_config(tmp_path / "whole", resolve(settings_of(tmp_path / "whole", attack)))
    run_until(tmp_path / "killed", resolve(settings_of(tmp_path / "killed", attack)), 2)
    run_config(tmp_path / "killed", resolve(settings_of(tmp_path / "killed", attack, resume=True)))
    assert_same(tmp_path / "killed", tmp_path / "whole")
    rows = read_rows(tmp_path / "whole")
    drawn = {client for row in rows for client in row.get("attackers", [])}
    assert len(drawn) == 2
    assert ("backdoor_success" in rows[-1].get("metrics", {})) == (attack == "backdoor")


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "multi-krum"])
def test_a_backdoor_in_entries_that_honest_clients_hardly_use_stays_out(tmp_path, rule):
    """Dark pixels are 0 in samples that are not normalised, so that honest clients do not change their weights."""
    shared = settings_of("", "backdoor", clients=12, cohort=10, rounds=50, attackers="4,9")
    shared |= {"aggregation": rule, "eval-every": 50, "local-steps": 10, "seed": 1, "normalize": False}
    shared |= {"krum-malicious": 2} if rule == "multi-krum" else {}
    success = {}
    for bound in (0, 2):
        folder = tmp_path / str(bound)
        run_config(folder, resolve(shared | {"entry-malicious": bound, "out": str(folder)}))
        last = read_rows(folder)[-1]
        assert last["accuracy"] > 0.9
        success[bound] = last["metrics"]["backdoor_success"]
    assert success[0] > 0.6
    assert success[2] < 0.2


def test_a_deployment_and_its_clients_refuse_an_attack(capsys, tmp_path):
    assert main(["deploy", "--set", "attack=alie", "--out", str(tmp_path / "run")]) == 2
    told = "Set 'attack' to none, or simulate the run: a deployed client attacks for no server."
    assert told in " ".join(capsys.readouterr().err.split())
    settings = SharedSettings(attack=AttackConfig(attack="label-flip"))
    node = SimpleNamespace(node_config={"partition-id": 0}, run_id=1, node_id=2)
    with pytest.raises(ConfigError, match="a deployed client attacks for no server"):
        client_of(settings, node)(None)
