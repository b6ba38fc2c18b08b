"""Selection by metrics of the candidates, or reported after training: values, cost, and which claims count."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from fedsel_app.config import ConfigError, NetworkConfig, Settings, setting
from fedsel_app.wiring.configuration import resolve
from simulation.apps.server.strategy import strategy as strategy_of_an_app
from strategies import Needs, Selection, SelectionStrategy
from strategies.testing import check_method
from strategies.testing.fakes import dense
from tests.runs.test_resume import end
from tests.runs.test_task_rounds import LINE, SMALL, TESTED, Huber
from tests.support.contexts import SIZE, context_of
from tests.support.in_process import run_config, run_in_process, run_until
from tests.support.logs import logged
from tests.support.rounds import read_rows, run_round
from tests.support.stubs import StubClient, round_of, update_reply

LOWEST = "tests.runs.test_selection_by_metrics:LowestMetric"


@dataclass(frozen=True)
class LowestMetricConfig(Settings):
    """Settings of the method."""

    metric: str = setting("accuracy", "metric to select by")
    read: str = setting("", "metric to read; empty: the same")
    after: bool = setting(False, "reads the metric that clients report after their training")


class LowestMetric(SelectionStrategy[LowestMetricConfig]):
    """The clients with the lowest metric on their own test parts; those without one come last."""

    name, paper, explores = "lowest-metric", "this test", False

    @classmethod
    def needs(cls, config):
        if config.after:
            return Needs(fit_metrics=(config.metric,), probe_test_part=True)
        return Needs(metrics=(config.metric,), probe_batches=0, probe_test_part=True)

    def select(self, roster, round_info, count, rng):
        order = rng.permutation(roster.ids)
        metric = (roster.fit_metric if self.config.after else roster.metric)(self.config.read or self.config.metric)
        metric = metric[order]
        return Selection(np.sort(order[np.argsort(metric, kind="stable")][:count]))


def settings_of(metric, **more):
    values = SMALL | TESTED | {"strategy": LOWEST, "lowest-metric.metric": metric, "rounds": 3} | more
    return {key.replace("_", "-"): value for key, value in values.items()}


EACH_METRIC = pytest.mark.parametrize(
    ("metric", "key", "more"),
    [
        ("accuracy", "accuracy", {}),
        ("f1-3", "f1_3", {"metrics": "f1-each"}),
        ("auroc", "auroc", {"metrics": "auroc", "details": "code"}),
        ("rmse", "rmse", LINE | {"metrics": "rmse", "probe_bits": 32}),
        ("inside", "inside", LINE | {"task": f"{__name__}:Within"}),
    ],
)


def own_tests(folder, key):
    """Round -> client -> the result of its own test."""
    tests = {}
    for row in read_rows(folder, "clients.jsonl"):
        if (value := row.get(key, (row.get("metrics") or {}).get(key))) is not None:
            tests.setdefault(row["round"], {})[row["client"]] = value
    return tests


@EACH_METRIC
def test_the_candidates_metrics_are_those_of_their_own_tests_of_the_same_model(tmp_path, metric, key, more):
    """After round t all clients test the model; before the selection of round t + 1 they measure the same one."""
    config = resolve(settings_of(metric, **more))
    _, rows = run_config(tmp_path, config)
    for before, row in pairwise(rows):
        own = own_tests(tmp_path, key)[before["round"]]
        assert row["probe_metrics"] == {metric: [own[client] for client in row["selected"]]}
        assert sorted(own.values())[:2] == sorted(row["probe_metrics"][metric])
    sent = 4 * rows[0]["downlink_bytes"] // 2
    assert [row["probe_bytes"] for row in rows] == [sent + 4 * 2 * 8] * 3


@EACH_METRIC
def test_a_metric_after_training_is_that_of_the_trained_model_on_the_clients_own_test(tmp_path, metric, key, more):
    """The only client of a round sends its whole update, so that its model is the next global one, which it tests.

    Clients that never trained come last, so that the first client trains again.
    """
    settings = settings_of(metric, **more | {"lowest-metric.after": True, "cohort": 1, "compressor": "none"})
    settings |= {"server-optimizer": "mean", "curvature-layers": 0, "max-update-norm": 0.0}
    strategy, rows = run_config(tmp_path, resolve(settings))
    [client] = {client for row in rows for client in row["selected"]}
    own = [own_tests(tmp_path, key)[row["round"]][client] for row in rows]
    assert [row["fit_metrics"][metric][0] for row in rows] == pytest.approx(own, rel=1e-5)
    assert strategy.roster.fit_metric(metric)[client] == rows[-1]["fit_metrics"][metric][0]
    assert np.isnan(np.delete(strategy.roster.fit_metric(metric), client)).all()
    assert strategy.roster.last_returned[client] == rows[-1]["round"]
    assert [row["probe_bytes"] for row in rows] == [8] * 3


class Within(Huber):
    """The score, a user's own, is the share of errors below 1."""

    score = "inside"

    def tally(self, outputs, y):
        return np.array([float((abs(outputs.flatten() - y) < 1.0).sum())])

    def scores(self, tally, loss, examples):
        return {"inside": tally[0] / examples}


def test_a_metric_is_charged_like_a_loss_and_a_hostile_one_counts_only_within_its_bounds():
    """With clock=full: the model down, a pass of 10 examples at a third of a step, two numbers of 8 bytes up."""
    network = NetworkConfig(
        clock="full",
        spread="log-normal",
        uplink_min_bits_per_s=1e3,
        uplink_max_bits_per_s=1e3,
        step_min_s=0.3,
        step_max_s=0.3,
    )
    context = context_of(
        LowestMetricConfig(), clients=6, cohort=2, network=network, holdout_fraction=0.5, batch_size=10
    )

    def sends(client, message):
        return update_reply(dense([1.0] * SIZE), client, round_of(message))

    claims = [0.2, 1.5, "high", True, -0.1, 0.1]
    strategy = LowestMetric(context)
    with logged() as log:
        [row], _ = run_round(
            strategy, [StubClient(client, sends, accuracy=claim) for client, claim in enumerate(claims)]
        )
    assert row["selected"] == [0, 5]
    assert row["probe_metrics"] == {"accuracy": [0.2, 0.1]}
    np.testing.assert_array_equal(strategy.roster.metric("accuracy"), [0.2, *[np.nan] * 4, 0.1])
    assert "accuracy of clients (4) is left out, because it is not a number from 0 to 1" in log()
    assert row["failures"] == []
    assert row["probe_bytes"] == 6 * (4 * SIZE + 2 * 8)
    probe_s = 32 * SIZE / 5e3 + 0.3 / 3 + 2 * 64 / 1e3
    trained_s = 32 * SIZE / 5e3 + 2 * 0.3 + 8 * row["uplink_bytes"] / 2 / 1e3
    assert row["round_s"] == pytest.approx(probe_s + trained_s)


@pytest.mark.parametrize(("test_part", "passes"), [(True, 2), (False, 7)])
def test_a_metric_after_training_takes_the_seconds_of_a_forward_pass(tmp_path, test_part, passes):
    """Of 80 examples of a client, 16 are its test part: two mini-batches of 10, or seven of the 64 others."""
    seconds = []
    for names in ((), ("accuracy",)):
        Measuring.declared = Needs(fit_metrics=names, probe_test_part=test_part)
        values = {"clients": 18, "cohort": 2, "rounds": 1, "local_steps": 3, "batch_size": 10, "partition": "iid"}
        values |= {"holdout_fraction": 0.2, "clock": "full", "spread": "log-normal"}
        values |= {"step_min_s": 0.3, "step_max_s": 0.3, "uplink_min_bits_per_s": 1e3, "uplink_max_bits_per_s": 1e3}
        strategy, [row] = run_in_process(tmp_path / str(names), strategy=f"{__name__}:Measuring", **values)
        assert strategy.roster.examples[row["selected"]].tolist() == [64, 64]
        seconds.append(row["round_s"])
    assert seconds[1] - seconds[0] == pytest.approx(0.3 * passes / 3)


class Measuring(SelectionStrategy):
    """The first clients, with the needs of the test."""

    name, paper, explores, declared = "measuring", "this test", False, Needs()

    @classmethod
    def needs(cls, config):
        return cls.declared

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[:count])


def test_a_hostile_metric_after_training_is_unknown_and_the_update_counts():
    claims = {0: 0.25, 1: 1.5, 2: "high", 3: True, 4: None}

    def sends(client, message):
        reply = update_reply(dense([1.0] * SIZE), client, round_of(message))
        told = {} if claims[client] is None else {"metric accuracy": claims[client]}
        return replace(reply, metrics={**reply.metrics, **told})

    strategy = LowestMetric(context_of(LowestMetricConfig(after=True), clients=5, cohort=5, holdout_fraction=0.5))
    with logged() as log:
        [row], _ = run_round(strategy, [StubClient(client, sends) for client in claims])
    assert row["aggregated"] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(row["fit_metrics"]["accuracy"], [0.25, *[np.nan] * 4])
    np.testing.assert_array_equal(strategy.roster.fit_metric("accuracy"), [0.25, *[np.nan] * 4])
    for client, claim in ((1, "1.5"), (2, "high"), (3, "True")):
        said = f"client {client} says {claim}"
        assert f"metric accuracy of clients (1) is left out, because it is not a number from 0 to 1: {said}" in log()
    assert row["probe_bytes"] == 5 * 8


def test_an_undeclared_metric_is_refused_at_the_first_read():
    strategy = LowestMetric(context_of(LowestMetricConfig(read="auroc"), holdout_fraction=0.5))
    with pytest.raises(ConfigError, match=r"reads the metric auroc, .* write `return Needs\(metrics=\('auroc',\)\)`"):
        run_round(strategy, [StubClient(client, accuracy=0.5) for client in range(3)])
    with pytest.raises(ConfigError, match=r"reads the fit metric f1-1, .* `return Needs\(fit_metrics=\('f1-1',\)\)`"):
        strategy.roster.fit_metric("f1-1")
    with pytest.raises(ConfigError, match=r"as a tuple: metrics=\('f1-1',\)"):
        Needs(metrics="f1-1")


@pytest.mark.parametrize(
    ("metric", "more", "said"),
    [
        ("f1-10", {}, "A metric that a method needs must be one of accuracy, f1_0, .* Got 'f1-10'."),
        ("acuracy", {}, "A metric that a method needs must be one of accuracy, or .* Got 'acuracy'."),
        ("rmse", {}, "Leave out the metric rmse"),
        ("accuracy", {"holdout_fraction": 0.0, "client_eval": False}, "Set 'holdout-fraction' above 0"),
    ],
)
def test_metrics_that_the_task_does_not_have_are_refused_before_the_first_round(tmp_path, metric, more, said):
    with pytest.raises(ConfigError, match=said):
        run_config(tmp_path, resolve(settings_of(metric, **more)))


def test_clients_of_a_users_own_app_have_no_metrics_before_a_selection():
    with pytest.raises(ConfigError, match=r"Let lowest-metric need 'fit_metrics' .* report only losses before"):
        strategy_of_an_app(LOWEST, clients=3, cohort=2)


@pytest.mark.parametrize(
    ("more", "after"),
    [
        ({"waiting": "buffered", "buffer_size": 1}, False),
        ({"participation": "isp", "isp_interval": 2, "isp_draws": 2}, True),
    ],
)
def test_a_run_goes_on_after_a_kill_also_where_others_select_in_its_place(tmp_path, more, after):
    values = settings_of("f1-macro", rounds=4, checkpoint_every=1, **more | {"lowest-metric.after": after})
    run_config(tmp_path / "whole", resolve(values))
    run_until(tmp_path / "killed", resolve(values), 2)
    run_config(tmp_path / "killed", resolve(values | {"resume": True}))
    assert end(tmp_path / "killed") == end(tmp_path / "whole")


def test_the_contract_suite_measures_metrics():
    check_method(LowestMetric)
    check_method(LowestMetric, after=True)
