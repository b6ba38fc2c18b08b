"""Servers that do not wait: FedBuff and FedAsync by hand and beside a plain loop, and B = K as a synchronous run."""

import heapq
import math
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from flwr.server import SimpleClientManager

from fedsel_app.config import ConfigError, NetworkConfig, TrainingConfig
from fedsel_app.messages.records import fedsel_config
from fedsel_app.network.links import SimulatedLinks
from fedsel_app.wire.codec import Update
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import make_strategy, open_run_folder
from simulation.engines.idle_settings import refuse_idle
from strategies import STRATEGIES, Selection, SelectionStrategy
from strategies.methods.random_selection import RandomSelection
from strategies.round.flower_grid import FlowerGrid
from strategies.run_round import run_rounds as run_rounds_with
from tests.bits.cases import BASE, OWN
from tests.support.contexts import SIZE, context_of
from tests.support.flower_state import task_identity
from tests.support.in_process import run_config
from tests.support.in_process_grid import InProcessGrid, grid_of
from tests.support.logs import logged
from tests.support.rounds import bits, read_rows, run_rounds
from tests.support.sources import ROOT
from tests.support.stubs import StubClient, round_of, update_reply

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")

FAST_LINKS = NetworkConfig(uplink_min_bits_per_s=1e18, uplink_max_bits_per_s=1e18)
BUFFERED = {"waiting": "buffered", "server_optimizer": "mean", "weighting": "uniform", "max_update_norm": 0.0}


class Lowest(SelectionStrategy):
    """Selects the idle clients with the lowest ids."""

    name, paper = "lowest", "this test"

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[:count])


class PacedLinks(SimulatedLinks):
    """Links of clients whose seconds per local step are given."""

    def __init__(self, config, step_s):
        super().__init__(config, len(step_s), 0)
        self.paces = np.array(step_s, np.float64)

    def observe(self, server_round, losses):
        return super().observe(server_round, losses)[0], self.paces


def made(step_s, update, method=Lowest, **settings):
    """A strategy, and its clients: client k takes `step_s[k]` seconds and sends `update(k, model)`, (SIZE,)."""
    started = []

    def fit(client, message):
        model = message.model.arrays[0].copy()
        started.append((client, round_of(message), model))
        values = np.asarray(update(client, model), np.float32)
        return update_reply(Update(SIZE, None, values), client, round_of(message), work_steps=1.0)

    context = context_of(clients=len(step_s), network=FAST_LINKS, training=TrainingConfig(local_steps=1), **settings)
    context = replace(context, links=PacedLinks(FAST_LINKS, step_s))
    return method(context), [StubClient(client, fit) for client in range(len(step_s))], started


def unit(client, model):
    return np.eye(SIZE)[client]


def test_fedbuff_by_hand():
    """Twelve replies of four clients that take 1, 2, 4 and 7 s; three train at the same time, and two are waited for.

    Begin and end: 0 and 1 and 2 from 0 to 1, 2, 4. At 2 s: 0 to 3 and 1 to 4. At 4 s (0, and 2 before 1): 0 to 5 and 2
    to 8. At 5 s (1 at 4, 0): 0 to 6, 1 to 7. At 7 s: 0 to 8, 1 to 9. At 8 s (2 before 0): 0 to 9, 2 to 12. At 9 s
    (1 before 0) the sixth step.
    """
    settings = {"cohort": 3, "rounds": 6, "buffer_size": 2, **BUFFERED}
    strategy, clients, started = made([1, 2, 4, 7], unit, **settings)
    rows, [model] = run_rounds(strategy, clients, 6)
    assert [row["selected"] for row in rows] == [[0, 1, 2], [0, 1], [0, 2], [0, 1], [0, 1], [0, 2]]
    assert [row["aggregated"] for row in rows] == [[0, 1], [0, 2], [0, 1], [0, 1], [0, 2], [0, 1]]
    assert [row["staleness"] for row in rows] == [[0, 0], [0, 1], [0, 1], [0, 0], [0, 2], [0, 1]]
    assert [row["time_s"] for row in rows] == pytest.approx([2, 4, 5, 7, 8, 9])
    assert [row["under_way"] for row in rows] == [1] * 6
    assert [row["cohort"] for row in rows] == [2] * 6
    assert [row["arrived_s"] for row in rows] == [
        pytest.approx(s) for s in ([1, 2], [1, 2], [1, 0], [1, 2], [1, 1], [1, 1])
    ]
    assert [row["downlink_bytes"] for row in rows] == [4 * SIZE * len(row["selected"]) for row in rows]
    # Weights 1/2 / sqrt(1 + staleness): client 0 six times fresh, 1 twice fresh and twice with 1, 2 with 1 and with 2.
    late = 0.5 / math.sqrt(2)
    np.testing.assert_allclose(model, [3.0, 1.0 + 2 * late, late + 0.5 / math.sqrt(3), 0.0], rtol=1e-6)
    # Each began at the model of its own round, although the server had gone on when it was asked.
    models = [np.zeros(SIZE)]
    for row in rows:
        models.append(models[-1].copy())
        models[-1][row["aggregated"]] += row["weights"]
    for _, number, begun in started:
        np.testing.assert_allclose(begun, models[number - 1], rtol=1e-6)


def test_fedasync_by_hand():
    """Two clients that take 2 and 3 s, half of each new model x_tau + e_k: replies at 2, 3, 4, 6 (1 before 0) and 6 s.

    x1 = e0/2. x2 = x1/2 + e1/2. x3 = x2/2 + (x1 + e0)/2. x4 = x3/2 + (x2 + e1)/2. x5 = x4/2 + (x3 + e0)/2.
    """
    settings = BUFFERED | {"waiting": "asynchronous", "server_lr": 0.5, "staleness": "constant"}
    strategy, clients, _ = made([2, 3], unit, cohort=2, rounds=5, **settings)
    rows, [model] = run_rounds(strategy, clients, 5)
    assert [row["aggregated"] for row in rows] == [[0], [1], [0], [1], [0]]
    assert [row["staleness"] for row in rows] == [[0], [1], [1], [1], [1]]
    assert [row["time_s"] for row in rows] == pytest.approx([2, 3, 4, 6, 6])
    np.testing.assert_allclose(model, [1.21875, 0.5625, 0, 0], rtol=1e-6)


def plain_loop(rows, step_s, update, wanted, weigh, rate, mixes):
    """FedBuff or FedAsync, with the selections of `rows`; the model after each step, and the time."""
    versions, heap, count, now, found = [np.zeros(SIZE)], [], 0, 0.0, []
    for number, row in enumerate(rows):
        for client in row["selected"]:
            count += 1
            heapq.heappush(heap, (now + step_s[client], count, client, number))
        steps, clients = [], []
        for _ in range(min(wanted, len(heap))):
            now, _, client, begun = heapq.heappop(heap)
            delta = np.asarray(update(client, versions[begun].astype(np.float32)))
            lag = number - begun + (1 if mixes else 0)
            steps.append(weigh(lag) * (versions[begun] + delta - versions[-1] if mixes else delta))
            clients.append(client)
        versions.append(versions[-1] + rate * np.mean(steps, axis=0))
        found.append((sorted(clients), now))
    return versions[1:], found


WEIGHTS = {
    "constant": lambda lag: 1.0,
    "polynomial": lambda lag: (1 + lag) ** -0.5,
}


@pytest.mark.parametrize("staleness", WEIGHTS)
@pytest.mark.parametrize(("waiting", "wanted"), [("buffered", 1), ("buffered", 3), ("asynchronous", 1)])
def test_a_plain_loop_gives_the_same(waiting, wanted, staleness):
    rng = np.random.default_rng(7)
    step_s, goals = rng.lognormal(0, 1, 9), rng.standard_normal((9, SIZE))

    def update(client, model):
        return 0.3 * (goals[client] - model)

    rate = 0.6 if waiting == "asynchronous" else 1.0
    settings = BUFFERED | {"waiting": waiting, "staleness": staleness, "server_lr": rate, "buffer_size": wanted}
    strategy, clients, _ = made(step_s, update, RandomSelection, cohort=5, rounds=40, **settings)
    rows, [model] = run_rounds(strategy, clients, 40)
    versions, found = plain_loop(
        rows, step_s, update, wanted, WEIGHTS[staleness], rate, mixes=waiting == "asynchronous"
    )
    assert [row["aggregated"] for row in rows] == [clients for clients, _ in found]
    assert [row["time_s"] for row in rows] == pytest.approx([time_s for _, time_s in found])
    np.testing.assert_allclose(model, versions[-1], rtol=1e-4, atol=1e-5)
    assert max(max(row["staleness"]) for row in rows) > 4


def test_a_client_that_fails_frees_its_place_and_the_next_reply_counts():
    strategy, clients, _ = made([1, 2, 3], unit, cohort=3, rounds=2, buffer_size=2, **BUFFERED)
    clients[0] = StubClient(0, lambda client, message: ValueError("gone"))
    rows, _ = run_rounds(strategy, clients, 2)
    assert [row["aggregated"] for row in rows] == [[1, 2], [1, 2]]
    assert [[failure["client"] for failure in row["failures"]] for row in rows] == [[0], [0]]
    assert strategy.roster.failures.tolist() == [2, 0, 0]


def test_a_quick_client_gives_no_more_than_its_share():
    """Of six clients one takes 0.07 s and the others 1 s. Without the bound it gives 44 of 60 updates, else 20."""
    settings = {"cohort": 6, "rounds": 120, "buffer_size": 1, **BUFFERED}
    given = {}
    for share in (0.0, 2.0):
        strategy, clients, _ = made([0.07] + [1] * 5, unit, max_client_share=share, **settings)
        with logged() as log:
            rows, _ = run_rounds(strategy, clients, 120)
        updates = [client for row in rows for client in row["aggregated"]]
        given[share] = [updates[first : first + 60].count(0) for first in range(61)]
    assert max(given[0.0]) >= 44
    assert max(given[2.0]) == 20
    assert updates[:12].count(0) == 4  # of the first 2 x 6, before which it gave all
    assert "client 0 has given 20 of the last " in log()
    assert {client for row in rows for client in row.get("resting") or ()} == {0}


def test_an_update_that_is_too_old_is_left_out_and_takes_no_step():
    """Client 1 replies in the fifth round, after 4.5 s."""
    strategy, clients, _ = made([1, 4.5], unit, cohort=2, rounds=6, buffer_size=1, max_staleness=3, **BUFFERED)
    rows, _ = run_rounds(strategy, clients, 6)
    assert [row["aggregated"] for row in rows] == [[0]] * 6
    [[failure]] = [row["failures"] for row in rows if row["failures"]]
    assert failure == {"client": 1, "reason": "the server has made 4 steps since its update began: see 'max-staleness'"}
    assert rows[4]["failures"]


ADDED = {"wall_s", "staleness", "under_way"}


def rows_of(config, folder, **options):
    strategy, _ = run_config(folder, config, **options)
    told = [{name: value for name, value in row.items() if name not in ADDED} for row in read_rows(folder)]
    return told, bits(strategy.run.model), read_rows(folder)


def both_ways(values, waiting, folder):
    """Rows and model of a synchronous run with these settings and of one with `waiting` as well."""
    waiting = {"waiting": "buffered", "buffer-size": 3, "staleness": "constant"} | waiting
    return [rows_of(resolve(values | more), folder / str(place))[:2] for place, more in enumerate([{}, waiting])]


QUICK = ("random", "hetero-select")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name, method in STRATEGIES.items()
        if not method.needs_whole_cohort
    ],
)
def test_a_buffer_of_the_whole_cohort_is_a_synchronous_run(name, tmp_path):
    values = BASE | {"strategy": name, "clock": "full", "spread": "log-normal"} | OWN.get(name, {})
    synchronous, buffered = both_ways(values, {"buffer-size": values["cohort"]}, tmp_path)
    assert synchronous == buffered


@pytest.mark.parametrize(
    ("more", "waiting"),
    [
        ({"client-failure-rate": 0.4, "min-returned": 3}, {}),
        ({"error-feedback-scheme": "ef21", "server-bits-per-s": 1e5, "clock": "full"}, {}),
        ({"aggregation": "median"}, {}),
        ({"cohort": 1, "server-optimizer": "mean", "server-lr": 0.6}, {"waiting": "asynchronous"}),
    ],
)
def test_so_it_is_with_other_settings(more, waiting, tmp_path):
    synchronous, buffered = both_ways(BASE | {"strategy": "random"} | more, waiting, tmp_path)
    assert synchronous == buffered


def test_so_it_is_if_clients_leave(tmp_path):
    """Who leaves before it has trained has not trained: no residual of its keeps an update of that round."""
    values = BASE | {"strategy": "random", "rounds": 6, "availability": "diurnal"}
    values |= {"availability-share": 0.5, "stay-s": 20.0}
    synchronous, buffered = both_ways(values, {}, tmp_path)
    assert any(row["failures"] for row in synchronous[0])
    for row, other in zip(synchronous[0], buffered[0], strict=True):
        assert [row[key] for key in ("aggregated", "failures")] == [other[key] for key in ("aggregated", "failures")]
        assert row["time_s"] == pytest.approx(other["time_s"], rel=1e-12)
    assert synchronous[1] == buffered[1]


LATE = BASE | {"strategy": "hetero-select", "rounds": 8, "cohort": 5, "waiting": "buffered", "spread": "log-normal"}
LATE |= {"step-min-s": 0.01, "step-max-s": 5.0, "checkpoint-every": 2}


def test_the_order_of_replies_does_not_depend_on_the_workers(tmp_path):
    config = resolve(LATE)
    runs = [rows_of(config, tmp_path / str(pool), pool=pool) for pool in (0, 1, 3)]
    assert max(max(row["staleness"]) for row in runs[0][2]) > 1
    for run in runs[1:]:
        assert run[:2] == runs[0][:2]


class Killed(BaseException):
    """The server's process ended here."""


EF21 = {"error-feedback-scheme": "ef21", "strategy": "random"}
ASYNCHRONOUS = {"waiting": "asynchronous", "server-optimizer": "mean", "server-lr": 0.6, "rounds": 12}
RESUMED = {
    "asynchronous": ASYNCHRONOUS | {"strategy": "oort", "max-client-share": 0.2, "max-staleness": 2},
    "away": {"availability": "diurnal", "stay-s": 60.0, "availability-share": 0.5},
    "batchnorm": {"model": "tests.bits.cases:batch_norm", "calibration-form": "training"} | EF21,
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_that_was_killed_under_way_ends_with_the_same_bits(name, tmp_path):
    """It is killed at every third reply to an instruction to train, until it ends."""
    values, replies = LATE | RESUMED[name], 0
    whole = rows_of(resolve(values), tmp_path / "whole")

    def kill(client, ins, reply):
        nonlocal replies
        replies += 1
        if replies == most:
            raise Killed
        return reply

    kills, most, resume = 0, 3, False
    while True:
        replies = 0
        try:
            again = rows_of(resolve(values | {"resume": resume}), tmp_path / "killed", on_fit=kill)
            break
        except Killed:
            kills, most, resume = kills + 1, most + 3, True
    assert kills >= 3
    assert again[:2] == whole[:2]


def test_a_round_that_takes_more_seconds_than_the_clock_counts_ends_the_run(tmp_path):
    slow = {"uplink-min-bits-per-s": 1e-308, "uplink-max-bits-per-s": 1e-308}
    with pytest.raises(ConfigError, match="round 1 takes inf s"):
        rows_of(resolve(BASE | slow | {"strategy": "random", "waiting": "buffered"}), tmp_path)


def test_an_asynchronous_server_is_that_of_fedasync_unless_it_is_set_otherwise():
    asynchronous = {"strategy": "random", "waiting": "asynchronous"}
    config = resolve(asynchronous)
    assert (config.server_optimizer.server_optimizer, config.server_optimizer.server_lr) == ("mean", 0.6)
    assert config.waiting.staleness == "polynomial"
    assert resolve(asynchronous | {"server-lr": 0.9}).server_optimizer.server_lr == 0.9
    values = config.values()
    with pytest.raises(ConfigError, match="With waiting=asynchronous, 'weighting' has no effect"):
        refuse_idle(["weighting"], [values])


def test_a_legacy_server_is_refused():
    strategy, *_ = made([1, 2], unit, cohort=2, buffer_size=1, **BUFFERED)
    with pytest.raises(ConfigError, match="'waiting' to synchronous"):
        strategy.configure_fit(1, strategy.initialize_parameters(SimpleClientManager()), SimpleClientManager())


def test_the_page_says_which_methods_run():
    """Those of the page resolve; that they run is tested above."""
    page = (ROOT / "docs/clock.md").read_text(encoding="utf-8")
    lines = page.partition("<!-- waiting:")[2].partition("\n\n")[0].splitlines()[3:]
    written = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    found = []
    for name in STRATEGIES:
        told = []
        for waiting in ("buffered", "asynchronous"):
            try:
                resolve({"waiting": waiting, "strategy": name})
                told.append("yes")
            except ConfigError as error:
                told.append(f"no: {str(error).partition(f'than {name}: ')[2].removesuffix('.')}")
        [both] = set(told)
        found.append([f"`{name}`", both])
    assert written == found


class SlowGrid(InProcessGrid):
    """Grid whose client k answers an instruction to train at the (1 + `waits[k]`)-th look.

    `asked` are the clients and rounds of these, and `disturbed` the clients that were to test a model meanwhile.
    """

    def __init__(self, config, waits):
        inner = grid_of(config)
        super().__init__(inner._app, inner._contexts)
        self._waits, self._looks, self._training = waits, {}, {}
        self.asked, self.disturbed = [], []

    def push_messages(self, messages):
        names = super().push_messages(messages)
        for name, message in zip(names, messages, strict=True):
            client = len(self._contexts) - message.metadata.dst_node_id
            if message.metadata.message_type == "train":
                self._looks[name] = self._waits[client]
                self._training[name] = client
                self.asked.append((client, int(fedsel_config(message.content)["server_round"])))
            elif client in self._training.values():
                self.disturbed.append(client)
        return names

    def pull_messages(self, message_ids):
        ready = [name for name in message_ids if self._looks.get(name, 0) <= 0]
        for name in message_ids:
            self._looks[name] = self._looks.get(name, 0) - 1
        for name in ready:
            self._training.pop(name, None)
        return super().pull_messages(ready)


DEPLOYED = BASE | {"strategy": "random", "clients": 4, "cohort": 3, "rounds": 9, "links": "measured"}
DEPLOYED |= {"waiting": "buffered", "compressor": "none", "checkpoint-every": 2}


def deployed(config, folder, waits, on_round=None, grid_class=SlowGrid):
    config = replace(config, records=replace(config.records, out=str(folder), state_dir=str(folder / "state")))
    grid = grid_class(config, waits)
    with closing(open_run_folder(config, on_round)) as recorder:
        strategy = make_strategy(config, recorder)
        run_rounds_with(strategy, FlowerGrid(grid))
    return strategy, recorder.rows, grid


def test_deployed_replies_are_taken_as_they_come(tmp_path):
    """The slow client gives fewer updates, later ones, and is not starved."""
    strategy, rows, _ = deployed(resolve(DEPLOYED | {"clients": 3, "buffer-size": 1}), tmp_path, [0, 0, 2])
    given = [sum(client in row["aggregated"] for row in rows) for client in range(3)]
    assert [len(row["aggregated"]) for row in rows] == [1] * 9
    assert 1 <= given[2] < min(given[:2])
    assert max(row["staleness"][0] for row in rows if row["aggregated"] == [2]) > 1
    assert strategy.run.time_s == pytest.approx(sum(row["round_s"] for row in rows))


def test_deployed_replies_that_are_too_old_are_left_out(tmp_path):
    settings = {"clients": 3, "buffer-size": 1, "max-staleness": 2}
    _, rows, _ = deployed(resolve(DEPLOYED | settings), tmp_path, [0, 0, 3])
    assert max(row["staleness"][0] for row in rows) <= 2
    assert {failure["client"] for row in rows for failure in row["failures"]} == {2}


def test_a_frozen_client_does_not_hold_the_probes_of_a_server_that_does_not_wait(tmp_path):
    class Frozen(SlowGrid):
        """Grid whose client 3 never answers a probe."""

        def push_messages(self, messages):
            names = super().push_messages(messages)
            for name, message in zip(names, messages, strict=True):
                if message.metadata.message_type == "evaluate" and message.metadata.dst_node_id == 1:
                    self._looks[name] = 10**9
            return names

    config = resolve(
        DEPLOYED | {"strategy": "power-of-choice", "rounds": 3, "enrol-timeout-s": 1.0, "reply-timeout-s": 9.0}
    )
    _, rows, _ = deployed(config, tmp_path, [0] * 4, grid_class=Frozen)
    assert max(row["round_s"] for row in rows) < 5.0
    assert [failure["client"] for failure in rows[0]["failures"]] == [3]
    assert "within 1 s" in rows[0]["failures"][0]["reason"]


@pytest.mark.parametrize("waiting", ["synchronous", "buffered"])
def test_a_measured_run_begins_when_its_clients_have_enrolled(waiting, tmp_path):
    class Late(SlowGrid):
        """Grid without nodes until it was asked for them five times: half a second."""

        calls = 0

        def get_node_ids(self):
            self.calls += 1
            return super().get_node_ids() if self.calls > 5 else []

    _, rows, _ = deployed(resolve(DEPLOYED | {"waiting": waiting, "rounds": 2}), tmp_path, [0] * 4, grid_class=Late)
    assert rows[0]["round_s"] < 0.4
    assert rows[0]["wall_s"] < 0.4


def test_a_deployed_buffer_of_the_whole_cohort_is_a_synchronous_run(tmp_path):
    whole = {"buffer-size": 3, "staleness": "constant"}
    buffered, _, _ = deployed(resolve(DEPLOYED | whole), tmp_path / "buffered", [3, 0, 1, 2])
    synchronous, _, _ = deployed(resolve(DEPLOYED | {"waiting": "synchronous"}), tmp_path / "waits", [3, 0, 1, 2])
    assert bits(buffered.run.model) == bits(synchronous.run.model)


def test_a_deployed_server_that_was_killed_asks_those_under_way_again(tmp_path):
    def kill(row):
        if row["round"] == 5:
            raise Killed

    with pytest.raises(Killed):
        deployed(resolve(DEPLOYED), tmp_path, [0, 0, 9, 9], kill)
    _, rows, grid = deployed(resolve(DEPLOYED | {"resume": True}), tmp_path, [0, 0, 9, 9])
    assert [row["round"] for row in rows] == list(range(1, 10))
    assert sum(number < 5 for _, number in grid.asked) == rows[3]["under_way"] >= 1


def test_deployed_clients_that_train_do_not_test_the_model(tmp_path):
    """They would answer only after their training, and the server would wait for them."""
    config = resolve(DEPLOYED | {"client-eval": True, "holdout-fraction": 0.2})
    _, rows, grid = deployed(config, tmp_path, [0, 0, 2, 9])
    assert grid.asked
    assert grid.disturbed == []
    assert all(row["client_accuracy"] > 0 for row in rows)
