"""A method gives each client its own local work: steps, seconds and FedNova's weights by hand, and runs that agree."""

from dataclasses import dataclass

import numpy as np
import pytest

from fedsel_app.config import ConfigError, Settings, setting
from fedsel_app.wiring.configuration import resolve
from strategies import Selection, SelectionStrategy
from strategies.testing import check_method
from tests.runs.test_resume import end
from tests.support.in_process import run_config, run_until

STRATEGY = "tests.runs.test_work_of_each_client:EachItsWork"
BASE = {
    "strategy": STRATEGY,
    "clients": 6,
    "cohort": 3,
    "rounds": 4,
    "local-steps": 3,
    "batch-size": 16,
    "compressor": "none",
    "weighting": "uniform",
    "server-optimizer": "mean",
    "curvature-layers": 0,
    "device": "cpu",
    "clock": "values",
}
IN_EPOCHS = {"local-steps": 0, "local-epochs": 1}
VALUE_BITS = 32 * 650


@dataclass(frozen=True)
class EachItsWorkConfig(Settings):
    """Which work is given."""

    give: str = setting("steps", "work to give", choices=("nothing", "equal", "steps", "epochs", "most", "both"))


class EachItsWork(SelectionStrategy[EachItsWorkConfig]):
    """Client k takes k + 1 local steps, or 1 + k % 3 epochs."""

    name, paper = "each-its-work", "this test"

    def select(self, roster, round_info, count, rng):
        clients, training = np.sort(rng.choice(roster.ids, count, replace=False)), self.context.training
        epochs, usual = 1 + clients % 3, np.ones_like(clients)
        given = {
            "nothing": {},
            "equal": {"local_steps": training.local_steps * usual}
            if training.local_steps
            else {"local_epochs": training.local_epochs * usual},
            "steps": {"local_steps": clients + 1},
            "epochs": {"local_epochs": epochs},
            "most": {"local_steps": 31 * usual},
            "both": {"local_steps": usual, "local_epochs": usual},
        }
        return Selection(clients, **given[self.config.give])


def run(folder, give, **more):
    values = BASE | {key.replace("_", "-"): value for key, value in more.items()} | {"each-its-work.give": give}
    return run_config(folder, resolve(values))


def steps_of(strategy, client, give, batch_size):
    epochs = {"steps": 0, "epochs": 1 + client % 3}[give]
    return epochs * -(-int(strategy.roster.examples[client]) // batch_size) or client + 1


@pytest.mark.parametrize("give", ["steps", "epochs"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"local_steps": 0, "local_epochs": 1},
        {"solver": "scaffold", "batch_size": 40},
        {"solver": "sgd", "details": "code", "local_steps": 9},
        {"solver": "feddyn", "spread": "log-normal"},
    ],
)
def test_steps_and_seconds_are_those_of_each_clients_work(tmp_path, give, more):
    strategy, rows = run(tmp_path, give, **({"local_steps": 12} | more))
    payloads = 1 + (more.get("solver") == "scaffold")
    total = 0
    for row in rows:
        steps = [steps_of(strategy, client, give, more.get("batch_size", 16)) for client in row["selected"]]
        assert row["local_steps"] == steps
        seconds = strategy.whole_roster.step_s[row["selected"]] * steps + payloads * VALUE_BITS / np.array(
            row["uplink_bits_per_s"]
        )
        assert row["round_s"] == pytest.approx(seconds.max())
        assert row["uplink_value_bytes"] == payloads * 3 * VALUE_BITS / 8
        total += sum(steps)
    assert total > 0
    assert len({tuple(row["local_steps"]) for row in rows}) > 1


def test_fednova_normalises_by_the_work_of_each_client(tmp_path):
    """||a|| of tau steps with momentum rho is the sum of the first tau partial sums of rho^j (below Eq. 6)."""
    for momentum in (0.0, 0.5):
        _, rows = run(tmp_path / str(momentum), "steps", solver="fednova", momentum=momentum)
        for row in rows:
            effective = np.array(
                [sum(momentum**j for last in range(client + 1) for j in range(last + 1)) for client in row["selected"]]
            )
            np.testing.assert_allclose(row["weights"], effective.mean() / effective / 3)


@pytest.mark.parametrize("work", [{}, {"local_steps": 0, "local_epochs": 1}])
def test_equal_work_has_the_bits_of_the_settings_work(tmp_path, work):
    ends = []
    for give in ("nothing", "equal"):
        run(tmp_path / give, give, **work)
        rows, *others = end(tmp_path / give)
        steps = [row.pop("local_steps", None) for row in rows]
        assert all(steps) == (give == "equal")
        ends.append((rows, others))
    assert ends[0] == ends[1]


def test_a_buffer_of_the_whole_cohort_is_a_synchronous_run_and_smaller_ones_go_on_after_a_kill(tmp_path):
    whole = {"waiting": "buffered", "buffer_size": 3, "staleness": "constant"}
    ends = []
    for name, more in (("synchronous", {}), ("buffered", whole)):
        strategy, rows = run(tmp_path / name, "steps", solver="sgd", **more)
        ends.append(([(row["local_steps"], row["time_s"]) for row in rows], strategy.run.model.parameters.tobytes()))
    assert ends[0] == ends[1]
    for give in ("steps", "epochs"):
        buffered = BASE | {"waiting": "buffered", "buffer-size": 1, "checkpoint-every": 1, "each-its-work.give": give}
        run_config(tmp_path / give, resolve(buffered | IN_EPOCHS))
        folder = tmp_path / f"killed-{give}"
        run_until(folder, resolve(buffered | IN_EPOCHS), 2)
        run_config(folder, resolve(buffered | IN_EPOCHS | {"resume": True}))
        assert end(folder) == end(tmp_path / give)


@pytest.mark.parametrize(
    ("give", "said"),
    [
        ("most", "must be at most 10 times the local work of the settings, here [30, 30, 30] steps. Got [31, 31, 31]."),
        ("both", "It has 'local_steps' and 'local_epochs': leave out one of them."),
    ],
)
def test_work_that_holds_a_round_or_is_given_twice_is_refused(tmp_path, give, said):
    with pytest.raises(ConfigError) as raised:
        run(tmp_path, give)
    assert str(raised.value).endswith(said)


def test_the_contract_suite_knows_the_work_of_each_client():
    check_method(EachItsWork, give="steps")
    with pytest.raises(AssertionError, match="leave out one of them"):
        check_method(EachItsWork, give="both")
