"""Masked deployments of fedsel's own clients, in Flower's messages: the bits of the simulation, whoever is lost."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message

from fedsel_app.config import ConfigError
from fedsel_app.messages.records import ARRAYS, FEDSEL
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import make_strategy, open_run_folder
from simulation.engines.inline_engine import Inline
from strategies.base import SelectionStrategy
from strategies.round.federation import ALL, Federation
from strategies.round.flower_grid import FlowerGrid
from strategies.run_round import run_rounds
from tests.support.client_messages import NORMED
from tests.support.in_process import Killed
from tests.support.logs import logged
from tests.support.masked_federation import Hook, MaskedGrid

pytestmark = pytest.mark.usefixtures("task_identity")
PLAIN = {
    "model": "mlp",
    "clients": 6,
    "cohort": 5,
    "rounds": 3,
    "local-steps": 2,
    "device": "cpu",
    "strategy": "random",
    "compressor": "common-k",
    "kept-fraction": 0.1,
    "kept-warmup-rounds": 0,
    "weighting": "uniform",
    "max-update-norm": 0.0,
    "links": "simulated",
    "seed": 7,
}
MASKED = PLAIN | {"secure-sums": "masks"}
NORMS: dict[str, Any] = {"model": NORMED, "calibration_form": "training"}
"""A model with BatchNorm, whose statistics are masked too."""
Rows = list[dict[str, Any]]


def played(
    folder: Path,
    federation: Callable[[Any], Federation],
    on_round: Callable[[dict[str, Any]], None] | None = None,
    **settings: Any,
) -> tuple[SelectionStrategy, Rows]:
    """Strategy and rows of a run."""
    config = resolve(MASKED | {key.replace("_", "-"): value for key, value in settings.items()})
    records = replace(config.records, out=str(folder / "run"), state_dir=str(folder / "state"))
    config = replace(config, records=records)
    with closing(open_run_folder(config, on_round)) as recorder:
        strategy = make_strategy(config, recorder)
        run_rounds(strategy, federation(config))
    return strategy, recorder.rows


def deployed(folder: Path, hook: Hook = lambda client, message: message, **settings: Any):
    """A run with deployed clients, whose messages pass through a hook."""
    return played(folder, lambda config: FlowerGrid(MaskedGrid(folder, config, hook)), **settings)


def task(message: Message) -> str:
    """Name of the instruction in a message."""
    return str(message.content[FEDSEL]["task"])


def losing(lost: dict[str, set[int]], server_round: int = 2) -> Hook:
    """Lose clients in a round: instruction -> the clients that get none."""

    def hook(client: int, message: Message) -> Message | None:
        there = message.content[FEDSEL].get("server_round") != server_round
        return message if there or client not in lost.get(task(message), set()) else None

    return hook


def same(one: tuple[SelectionStrategy, Rows], other: tuple[SelectionStrategy, Rows]) -> None:
    """Both runs end with the same model, and aggregated the same clients."""
    assert [row["aggregated"] for row in one[1]] == [row["aggregated"] for row in other[1]]
    for vector, beside in zip(one[0].run.model, other[0].run.model, strict=True):
        assert np.array_equal(vector, beside)


def test_a_masked_deployment_has_the_bits_the_bytes_and_the_clock_of_the_simulation(tmp_path: Path) -> None:
    """And those of a deployment without masks, but for the bytes and the time of the second exchange."""
    bits = 24
    masked, simulated = deployed(tmp_path / "a", ring_bits=bits), played(tmp_path / "b", Inline, ring_bits=bits)
    plain = deployed(tmp_path / "c", ring_bits=bits, secure_sums="none")
    same(masked, simulated)
    same(masked, plain)
    for row, beside, without in zip(masked[1], simulated[1], plain[1], strict=True):
        for key in ("round_s", "time_s", "uplink_bytes", "uplink_value_bytes", "downlink_bytes"):
            assert row[key] == beside[key], key
        boxes = 4 * (17 * 5 + 16)
        assert row["downlink_bytes"] - without["downlink_bytes"] == 5 * boxes
        tail = 128 * bits // 8 + boxes + 5 * 16 + 5 * 17 - 31
        assert row["uplink_bytes"] - without["uplink_bytes"] == 5 * tail
        assert row["round_s"] > without["round_s"]


def test_clients_weigh_their_updates_by_examples_before_they_mask_them(tmp_path: Path) -> None:
    """So they do with BatchNorm's statistics. The means are those of a server which sees and weighs the single ones."""
    told = NORMS | {"weighting": "examples", "partition": "dirichlet", "alpha": 0.3, "ring_bits": 32}
    told |= {"kept_fraction": 1.0}
    masked, simulated = deployed(tmp_path / "a", **told), played(tmp_path / "b", Inline, **told)
    same(masked, simulated)
    same(played(tmp_path / "c", Inline, round_deadline_s=1e6, **told), simulated)
    for row, beside in zip(masked[1], simulated[1], strict=True):
        for key in ("uplink_bytes", "uplink_value_bytes", "downlink_bytes", "calibration_bytes"):
            assert row[key] == beside[key], key
    seen, equal = (
        played(tmp_path / name, Inline, **told | changed)
        for name, changed in {"d": {"secure_sums": "none"}, "e": {"weighting": "uniform"}}.items()
    )
    assert [row["weights"] for row in masked[1]] == [row["weights"] for row in seen[1]]
    for vector, beside, other in zip(*(run[0].run.model for run in (simulated, seen, equal)), strict=True):
        np.testing.assert_allclose(vector, beside, atol=1e-6)
        assert not np.allclose(vector, other, atol=1e-4)


@pytest.mark.parametrize(
    ("strategy", "own"),
    [
        ("hetero-select-stable", {"clear_number": "norm"}),
        ("power-of-choice", {}),
        pytest.param("adasample", {"clear_number": "norm"}, marks=pytest.mark.slow),
        ("adafl", {"clear_number": "norm", "adafl.distance": "norm"}),
        pytest.param("terraform", {"terraform.magnitude": "loss"}, marks=pytest.mark.slow),
        pytest.param("terraform", {"terraform.magnitude": "norm", "clear_number": "norm"}, marks=pytest.mark.slow),
    ],
)
def test_a_method_that_selects_by_norms_or_losses_gets_them_in_clear(tmp_path: Path, strategy: str, own: Any) -> None:
    """The same clients are selected as in the simulation."""
    told = {"strategy": strategy, "rounds": 3} | own
    masked, simulated = deployed(tmp_path / "a", **told), played(tmp_path / "b", Inline, **told)
    same(masked, simulated)
    assert all(row["aggregated"] for row in simulated[1])


def test_an_attack_on_the_examples_needs_no_single_update_and_runs(tmp_path: Path) -> None:
    """In a simulation, where labels are flipped; attacks on updates are refused."""
    honest = played(tmp_path / "a", Inline)
    attacked = played(tmp_path / "b", Inline, attack="label-flip", attackers="1,3")
    assert [row["aggregated"] for row in attacked[1]] == [row["aggregated"] for row in honest[1]]
    assert not np.array_equal(attacked[0].run.model.parameters, honest[0].run.model.parameters)


def test_replies_in_any_order_give_the_same_bits(tmp_path: Path) -> None:
    """Clients of a simulation that answer in the opposite order, and messages of a deployment that arrive in it."""

    class Backwards(Inline):
        def ask(self, messages: Any, until: Any = ALL) -> Any:
            return super().ask(messages[::-1], until)

    class Late(MaskedGrid):
        def pull_messages(self, message_ids: Any) -> Any:
            return super().pull_messages(message_ids)[::-1]

    expected = played(tmp_path / "a", Inline, **NORMS)
    same(played(tmp_path / "b", Backwards, **NORMS), expected)
    same(played(tmp_path / "c", lambda config: FlowerGrid(Late(tmp_path, config)), **NORMS), expected)


def test_a_run_that_was_killed_and_resumed_has_the_same_bits(tmp_path: Path) -> None:
    """Killed after round 3, taken up again after round 2. The clients make new keys."""

    def federation(config: Any) -> Federation:
        return FlowerGrid(MaskedGrid(tmp_path, config))

    def kill(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise Killed

    told = NORMS | {"rounds": 4, "checkpoint_every": 2, "ring_bits": 8, "kept_fraction": 0.2}
    with pytest.raises(Killed):
        played(tmp_path / "a", federation, kill, **told)
    same(played(tmp_path / "a", federation, resume=True, **told), played(tmp_path / "b", Inline, **told))


@pytest.mark.parametrize(
    ("lost", "like"),
    [
        ({"train": {1, 4}}, {"train": {1, 4}}),
        ({"unmask": {1}}, {}),
        ({"train": {4}, "unmask": {2}}, {"train": {4}}),
    ],
    ids=["before the first exchange", "between the two", "at both"],
)
def test_the_sum_is_that_of_the_clients_that_replied(
    tmp_path: Path, lost: dict[str, set[int]], like: dict[str, set[int]]
) -> None:
    """A client that is lost after it has replied is in the sum."""
    same(
        deployed(tmp_path / "masked", losing(lost), cohort=6, strategy="full"),
        deployed(tmp_path / "plain", losing(like), secure_sums="none", cohort=6, strategy="full"),
    )


def test_too_few_clients_mask_once_more_and_the_round_has_their_sum(tmp_path: Path) -> None:
    """Three of six reply, and four must: the three mask the same numbers again, and nobody trains twice."""
    lost, tasks = {"train": {1, 3, 4}}, list[str]()

    def hook(client: int, message: Message) -> Message | None:
        tasks.append(task(message))
        return losing(lost)(client, message)

    with logged() as log:
        masked = deployed(tmp_path / "masked", hook, cohort=6, strategy="full", **NORMS)
    plain = deployed(tmp_path / "plain", losing(lost), secure_sums="none", cohort=6, strategy="full", **NORMS)
    assert np.array_equal(masked[0].run.model.parameters, plain[0].run.model.parameters)
    np.testing.assert_allclose(masked[0].run.model.buffers, plain[0].run.model.buffers, atol=1e-3)
    assert tasks.count("mask") == 3
    assert "attempt 1: no sum: 3 of 6 clients replied, too few for the threshold of 4" in log()


def test_a_round_without_a_sum_is_lost_with_a_reason_and_the_run_goes_on(tmp_path: Path) -> None:
    """Two clients of six reply in round 2; its updates return to the clients' residuals, and rounds 3 and 4 learn."""
    lost = losing({"train": {1, 2, 3, 4}})
    with logged() as log:
        _, rows = deployed(tmp_path, lost, rounds=4, cohort=6, strategy="full")
    assert [len(row["aggregated"]) for row in rows] == [6, 0, 6, 6]
    assert "Round 2 is lost: 2 of 6 clients replied, and a sum has at least 3. The run goes on." in log()
    reasons = {failure["reason"] for failure in rows[1]["failures"]}
    assert any("its update is in no sum: 2 of 6 clients replied" in reason for reason in reasons)


def test_a_client_that_restarts_enrols_with_a_new_key(tmp_path: Path) -> None:
    """It fails once, because it has forgotten its key, and takes part again in the next round."""
    grids: list[MaskedGrid] = []

    def hook(client: int, message: Message) -> Message:
        if client == 2 and message.content[FEDSEL].get("server_round") == 2 and task(message) == "train":
            grids[0].restart(2)
        return message

    def federation(config: Any) -> FlowerGrid:
        grids.append(MaskedGrid(tmp_path, config, hook))
        return FlowerGrid(grids[0])

    # The hook restarts the client after the grid has chosen the context: its next message finds the new one.
    _, rows = played(tmp_path, federation, rounds=4, cohort=6, strategy="full")
    assert [len(row["aggregated"]) for row in rows] == [6, 6, 5, 6]
    assert "Client 2 has no key of this run: it has restarted." in rows[2]["failures"][0]["reason"]


class LyingGrid(MaskedGrid):
    """Grid whose client 3 changes the arrays of its reply in round 2."""

    change: Callable[[list[Any]], list[Any]]

    def _answered(self, message: Message, context: Any) -> Message:
        reply = super()._answered(message, context)
        in_round_2 = task(message) == "train" and message.content[FEDSEL]["server_round"] == 2
        if in_round_2 and int(context.node_config["partition-id"]) == 3:
            reply.content[ARRAYS] = ArrayRecord(self.change(reply.content[ARRAYS].to_numpy_ndarrays()))
        return reply


LYING_CLIENT: dict[str, tuple[Callable[[list[Any]], list[Any]], int]] = {
    "boxes that do not open": (lambda arrays: [arrays[0], np.zeros_like(arrays[1]), arrays[2]], 5),
    "promises of other seeds": (lambda arrays: [*arrays[:2], np.zeros_like(arrays[2])], 0),
    "words of another ring": (lambda arrays: [arrays[0][:-1], *arrays[1:]], 5),
    "numbers beyond the ring": (lambda arrays: [arrays[0] + np.uint8(128), *arrays[1:]], 6),
}


@pytest.mark.parametrize("lie", LYING_CLIENT)
def test_a_client_that_lies_is_left_out_or_loses_the_round_and_the_run_goes_on(tmp_path: Path, lie: str) -> None:
    """Client 3 lies in round 2."""
    change, aggregated = LYING_CLIENT[lie]

    def federation(config: Any) -> FlowerGrid:
        grid = LyingGrid(tmp_path, config)
        grid.change = change
        return FlowerGrid(grid)

    strategy, rows = played(tmp_path, federation, rounds=3, cohort=6, strategy="full")
    assert [len(row["aggregated"]) for row in rows] == [6, aggregated, 6]
    assert np.isfinite(strategy.run.model.parameters).all()
    if aggregated == 5:
        assert [failure["client"] for failure in rows[1]["failures"]] == [3]


@pytest.mark.parametrize("forges", [True, False])
def test_a_client_with_a_key_that_the_others_refuse_spoils_one_round(tmp_path: Path, forges: bool) -> None:
    """Client 3 tells a signature of zeros: the others say so, and go on without it. Two liars are too few to say so."""

    class Forging(MaskedGrid):
        def _answered(self, message: Message, context: Any) -> Message:
            reply = super()._answered(message, context)
            client = int(context.node_config["partition-id"])
            if forges and task(message) == "enrol" and client == 3:
                reply.content[FEDSEL]["key_signature"] = bytes(32)
            if not forges and task(message) == "train" and client < 2:
                raise ConnectionError("The key of client 3 is missing, or not signed by it.")
            return reply

    with logged() as log:
        _, rows = played(tmp_path, lambda config: FlowerGrid(Forging(tmp_path, config)), cohort=6, strategy="full")
    assert [row["aggregated"] for row in rows] == ([[]] + 2 * [[0, 1, 2, 4, 5]] if forges else 3 * [[2, 3, 4, 5]])
    assert ("Round 1: client 3 is left out: its key is not signed." in log()) == forges


def test_batchnorm_that_clients_would_calibrate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Set 'calibration-form' to training or local"):
        played(tmp_path, Inline, model=NORMED)


def test_a_client_whose_owner_demands_masks_sends_nothing_else(tmp_path: Path) -> None:
    """A server that asks for plain updates gets the sentence, and no update."""

    class Demanding(MaskedGrid):
        def context(self, client: int, **own: Any):
            return super().context(client, **{"secure-sums": "masks", **own})

    with pytest.raises(Exception, match="asks for an update without a mask"):
        played(tmp_path, lambda config: FlowerGrid(Demanding(tmp_path, config)), secure_sums="none")
