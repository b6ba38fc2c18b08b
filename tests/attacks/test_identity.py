"""Attacks on identity: a node that claims another's partition id, or nonsense, gets nothing and stops nobody.

Falls 3 (an impostor got every message of client 0), 5 (`True` as a partition id was every client's), 7 (a late node
that never answered held the run up) and 21 (one senseless node ended every start).
"""

from dataclasses import replace
from itertools import product

import pytest

from fedsel_app.config import EnrolmentConfig
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.records import clients_named
from fedsel_app.server_app import federation_of
from fedsel_app.wiring.client import make_client_app
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import run_with as carry_out
from strategies.methods.random_selection import RandomSelection
from strategies.round import clients as connected
from strategies.round.federation import ALL
from tests.support.contexts import context_of
from tests.support.in_process_grid import grid_of
from tests.support.logs import logged
from tests.support.rounds import read_rows, rounds, run_rounds
from tests.support.stubs import StubClient, StubFederation, trio

pytestmark = pytest.mark.usefixtures("task_identity")

ROUNDS = 4


def run_with(late, at=2, *, leaving=None, **settings):
    """A run of three honest nodes whom `late` joins in round `at`; its strategy, its rows, and the honest nodes."""
    strategy = RandomSelection(context_of(rounds=ROUNDS, **settings))
    honest = trio()
    federation = StubFederation(honest)

    def join_and_leave(number):
        if number == at:
            federation.join(late)
        if number == leaving:
            federation.leave(honest[0])

    rows, _ = run_rounds(strategy, federation, ROUNDS, join_and_leave)
    return strategy, rows, honest


def claims(strategy):
    return [row for row in strategy.context.recorder.client_rows if "outcome" in row]


def test_an_impostor_gets_no_message_of_the_client_that_it_claims_to_be():
    """Of two nodes with one partition id the later one was meant."""
    impostor = StubClient(0, node="impostor", examples=10**9)
    with logged() as log:
        strategy, rows, honest = run_with(impostor)
    assert impostor.kinds == ["query"]
    assert honest[0].kinds == ["query", *["train"] * ROUNDS]
    assert all(row["aggregated"] == [0, 1, 2] for row in rows)
    assert [claim | {"outcome": ""} for claim in claims(strategy)] == [
        {"round": 2, "node": "impostor", "outcome": "", "client": 0, "owner": "0"}
    ]
    assert "Node impostor as client 0: refused: it belongs to node 0." in log()


@pytest.mark.parametrize("keys", [False, True])
def test_a_partition_id_passes_on_only_without_keys_and_when_its_node_is_gone(keys):
    another = StubClient(0, node="another")
    strategy, rows, _ = run_with(another, leaving=3, node_keys=keys)
    assert another.kinds == ["query"] + ["train"] * (0 if keys else 2)
    assert [row["aggregated"] for row in rows] == [[0, 1, 2]] * 2 + [[1, 2] if keys else [0, 1, 2]] * 2
    last = claims(strategy)[-1]
    assert last["owner"] == "0"
    assert ("and its key" if keys else "taken over from node 0") in last["outcome"]


def test_a_resumed_run_knows_the_nodes_that_it_had():
    strategy, _, _ = run_with(StubClient(2, node="late"), node_keys=True)
    resumed = RandomSelection(context_of(rounds=2 * ROUNDS, node_keys=True))
    resumed.restore(strategy.snapshot())
    nodes = [*trio(), StubClient(0, node="impostor")]
    run_rounds(resumed, nodes, ROUNDS)
    assert [node.kinds.count("train") for node in nodes] == [ROUNDS] * 3 + [0]


def test_a_resumed_run_that_meets_another_superlink_enrols_anew():
    strategy, _, _ = run_with(StubClient(2, node="late"), node_keys=True)
    resumed = RandomSelection(context_of(rounds=2 * ROUNDS, node_keys=True))
    resumed.restore(strategy.snapshot())
    nodes = [StubClient(client, node=f"new {client}") for client in range(3)]
    run_rounds(resumed, nodes, ROUNDS)
    assert [node.kinds.count("train") for node in nodes] == [ROUNDS] * 3
    assert not claims(resumed)


NONSENSE = {
    "bool": ({"client": True}, ""),
    "text": ({"client": "0" * 3_000_000}, ""),
    "beyond": ({"client": 3}, ""),
    "no example": ({"examples": 0}, " as client 0"),
    "absurd examples": ({"examples": 10**12}, " as client 0"),
    "NaN examples": ({"examples": float("nan")}, " as client 0"),
}


@pytest.mark.parametrize(("lie", "named"), NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("at", [1, 2], ids=["start", "late"])
def test_a_node_that_says_nonsense_is_left_out_by_its_name_and_the_others_go_on(lie, named, at):
    """Falls 5 and 21."""
    liar = StubClient(0, node="liar", properties=EnrolAnswer(0, 10).to_config() | lie)
    with logged() as log:
        strategy, rows, _ = run_with(liar, at)
    assert all(row["aggregated"] == [0, 1, 2] for row in rows)
    assert liar.kinds == ["query"]
    [claim] = claims(strategy)
    assert claim["node"] == "liar"
    assert f"Node liar{named}: left out" in log()
    assert len(claim["outcome"]) < 400
    assert len(log()) < 500


def test_of_two_nodes_with_one_partition_id_at_the_start_neither_is_believed(no_waiting):
    """Such a start ended, and did not say which nodes they were."""
    strategy, rows, honest = run_with(StubClient(0, node="twin"), 1, leaving=3, connect_timeout_s=1)
    assert [row["aggregated"] for row in rows] == [[1, 2]] * 2 + [[0, 1, 2]] * 2
    assert honest[0].kinds == ["query"]
    assert [(claim["node"], claim["client"]) for claim in claims(strategy)] == [("0", 0), ("twin", 0)]
    assert "nodes 0, twin claim it at the same time" in claims(strategy)[0]["outcome"]


class Limits(StubFederation):
    """Federation that remembers the time limit of its last question."""

    def ask(self, messages, until=ALL):
        self.limit_s = until.deadline_s
        return super().ask(messages, until)


def test_a_late_node_that_never_answers_is_waited_for_once(monkeypatch):
    """It was asked without a limit, and one that answered with an error was asked in every round."""
    now_s = [1000.0]
    monkeypatch.setattr(connected.time, "monotonic", lambda: now_s[0])
    clients = connected.ConnectedClients(3, EnrolmentConfig(enrol_timeout_s=7.0))
    silent = StubClient(2, node="silent", properties=ValueError("Message Unavailable: its time to live is over"))
    federation = Limits(trio()[:2])
    clients.enrol(federation, wait=False)
    federation.join(silent)
    asked_s = []
    for _ in range(300):
        clients.enrol(federation, wait=False)
        if silent.asked:
            asked_s.append(now_s[0] - 1000.0)
            silent.asked.pop()
            assert federation.limit_s == 7.0
        now_s[0] += 1.0
    # The pauses are 14, 28, 56, 112 and 224 s long.
    assert asked_s == [0.0, 14.0, 42.0, 98.0, 210.0]
    [claim] = clients.enrolment.identity_conflicts
    assert "time to live" in claim.outcome


def carrying(app, *, itself):
    """The app of a client that, on node 1, also answers for the clients 0 and 1; not for `itself`, 2, if False."""

    def answer(message, context):
        reply = app(message, context)
        if context.node_id == 1:
            for name, client in product(list(reply.content), (0, 1, 2)):
                reply.content[f"{name}.{client}"] = reply.content[name]
            if not itself:
                del reply.content["fedsel"]
        return reply

    return answer


@pytest.mark.parametrize("itself", [True, False])
def test_a_deployed_node_cannot_answer_for_other_clients(itself, tmp_path):
    """Nodes carry clients only in a simulation, which the server recognises by the grid of its own process."""

    def carried_out(name, grid, config):
        config = replace(config, records=replace(config.records, out=str(tmp_path / name)))
        carry_out(federation_of(grid, config), config, lambda row: None)
        return rounds(tmp_path / name)

    values = {"strategy": "random", "clients": 3, "cohort": 3, "rounds": 2, "local-steps": 1}
    values |= {"state-dir": str(tmp_path / "states"), "connect-timeout-s": 1, "min-available-clients": 2}
    config, honest = resolve(values), resolve(values | {"state-dir": str(tmp_path / "others")})
    grid = grid_of(config, app=carrying(make_client_app(config), itself=itself))
    rows = carried_out("attacked", grid, config)
    assert not any(clients_named(message.content) for message in grid.pushed)
    if itself:
        assert rows == carried_out("honest", grid_of(honest), honest)
    else:
        assert [row["aggregated"] for row in rows] == [[0, 1]] * 2
        assert "not from fedsel" in read_rows(tmp_path / "attacked", "clients.jsonl")[-1]["outcome"]
