import numpy as np
import pytest
from flwr.server.superlink.linkstate.utils import NODE_UNAVAILABLE_ERROR_REASON

from fedsel_app.config import ConfigError, EnrolmentConfig
from fedsel_app.messages.instructions import EnrolInstruction
from fedsel_app.wire.codec import Update, WireError
from strategies.round import clients as connected
from strategies.round.clients import ConnectedClients
from strategies.round.federation import ALL, NodeError
from strategies.round.replies import values
from strategies.testing.fakes import dense
from tests.support.stubs import StubClient, StubFederation, as_sent, update_reply


def one_array(array) -> bytes:
    return as_sent(array)[0]


def test_a_payload_is_bounded_by_the_model():
    # Dense, a model of 1,000 parameters takes 4,028 bytes; nothing sound takes 3 times that.
    sound = update_reply(dense([1.0] * 1000), 0, 1).tensors[0]
    assert values.decode_payload(sound, 0, 1, 1000)[1] == 4028
    wide = update_reply(Update(1000, None, np.ones(1000)), 0, 1).tensors[0]
    with pytest.raises(WireError, match="entries of 8 bytes, and the model's have 4"):
        values.decode_payload(wide, 0, 1, 1000)
    with pytest.raises(WireError, match="at most"):
        values.decode_payload(one_array(np.zeros(13_000, np.uint8)), 0, 1, 1000)


def clients_of(total, **settings):
    return ConnectedClients(total, EnrolmentConfig(connect_timeout_s=1, **settings))


def enrolled(stubs, total, **options):
    clients = clients_of(total)
    return clients, clients.enrol(StubFederation(stubs), **{"wait": True} | options)


def test_clients_are_known_by_partition_id_whatever_their_cids():
    stubs = [StubClient(client, node=cid) for client, cid in ((2, "0"), (0, "zz"), (1, "1"))]
    clients, enrolments = enrolled(stubs, 3)
    assert [enrolment.client for enrolment in enrolments] == [0, 1, 2]
    assert clients.nodes == {0: "zz", 1: "1", 2: "0"}


def test_clients_are_asked_once_and_followed_as_they_come_and_go():
    stubs = [StubClient(0), StubClient(1)]
    federation = StubFederation(stubs)
    clients = clients_of(3)
    assert len(clients.enrol(federation, 1, True, wait=False)) == 2
    federation.leave(stubs[0])
    late = StubClient(2)
    federation.join(late)
    assert [enrolment.client for enrolment in clients.enrol(federation, wait=False)] == [2]
    assert set(clients.nodes) == {1, 2}
    back = StubClient(0, node="new")
    federation.join(back)
    assert [enrolment.client for enrolment in clients.enrol(federation, wait=False)] == [0]
    assert clients.nodes[0] == "new"
    assert [len(stub.asked) for stub in (*stubs, late, back)] == [1, 1, 1, 1]
    assert stubs[0].told("query") == [EnrolInstruction(label_counts=True)]


def test_too_few_clients(no_waiting):
    with pytest.raises(ConfigError, match="Only 2 of 3 clients connected within 1 s"):
        enrolled([StubClient(0), StubClient(1)], 3)


@pytest.mark.parametrize(("total", "told"), [(3, "2 of 3 clients enrolled"), (4, "3 of 4 clients connected")])
def test_enough_clients_begin_when_the_time_is_over_and_the_wait_is_told(total, told, no_waiting, capsys):
    clients = ConnectedClients(total, EnrolmentConfig(connect_timeout_s=9, min_available_clients=3))
    failing = StubClient(1, properties=ValueError("no data"))
    clients.enrol(StubFederation([StubClient(0), failing, StubClient(2)]), wait=True)
    assert set(clients.nodes) == {0, 2}
    waits = capsys.readouterr().out.splitlines()
    assert [wait.partition("; waiting until ")[0] for wait in waits] == [told]
    with pytest.raises(ConfigError, match="start with fewer by 'min-available-clients'"):
        clients_of(3, min_available_clients=2).enrol(StubFederation([StubClient(0)]), wait=True)


def test_who_is_not_back_yet_is_asked_again_and_nobody_else(monkeypatch):
    """Flower holds a node to be connected for a while after a restart of the SuperLink."""
    monkeypatch.setattr(connected, "ASK_AGAIN_S", 0.0)
    assert NODE_UNAVAILABLE_ERROR_REASON.startswith(connected.UNAVAILABLE)
    unavailable = ValueError(f"Message contains an Error (reason: {NODE_UNAVAILABLE_ERROR_REASON}).")
    answers = [unavailable, unavailable]

    class OnceBack(StubClient):
        def enrol(self, message):
            if answers:
                raise answers.pop()
            return super().enrol(message)

    stubs, clients = [StubClient(0), OnceBack(1)], ConnectedClients(2, EnrolmentConfig())
    assert [enrolment.client for enrolment in clients.enrol(StubFederation(stubs), wait=True)] == [0, 1]
    assert [len(stub.asked) for stub in stubs] == [1, 3]
    assert not clients.enrolment.identity_conflicts
    with pytest.raises(ConfigError, match="not connected"):
        enrolled([StubClient(0, properties=unavailable)], 1)


class ComingBack(StubFederation):
    """Both nodes are listed and do not answer, then no node is listed for a while, and then both are back."""

    looks = 0

    def nodes(self):
        self.looks += 1
        return frozenset() if 2 < self.looks < 5 else super().nodes()

    def ask(self, messages, until=ALL):
        if self.looks == 2:
            return {message.node: NodeError(message.node, NODE_UNAVAILABLE_ERROR_REASON) for message in messages}
        return super().ask(messages, until)


def test_after_a_restart_of_server_and_clients_the_run_waits_until_they_are_back(monkeypatch):
    """Within a minute after both were killed, no client could be enrolled, long before connect-timeout-s."""
    monkeypatch.setattr(connected, "ASK_AGAIN_S", 0.0)
    clients = ConnectedClients(2, EnrolmentConfig(connect_timeout_s=60))
    federation = ComingBack([StubClient(0), StubClient(1)])
    assert [enrolment.client for enrolment in clients.enrol(federation, wait=True)] == [0, 1]


class GoneForAMoment(StubFederation):
    """A node whose last sign of life is old when it answers, so that Flower lists it again only at its next one."""

    looks = 0

    def nodes(self):
        self.looks += 1
        return frozenset(list(super().nodes())[: 1 if 2 < self.looks < 5 else 2])


def test_a_run_does_not_begin_while_a_client_that_has_answered_is_not_listed(monkeypatch):
    """A resumed server probed two of three clients, without a recorded failure."""
    monkeypatch.setattr(connected, "ASK_AGAIN_S", 0.0)
    clients, federation = ConnectedClients(2, EnrolmentConfig()), GoneForAMoment([StubClient(0), StubClient(1)])
    clients.enrol(federation, wait=True)
    clients.enrol(federation, wait=False)
    assert set(clients.nodes) == {0, 1}


@pytest.mark.parametrize(
    ("stubs", "match"),
    [
        ([StubClient(5), StubClient(2)], "'clients' is 2"),
        ([StubClient(0, node="a"), StubClient(0, node="b")], "nodes a, b claim it at the same time"),
        ([StubClient(0, examples=0), StubClient(1, examples=0)], "did not report its 'examples'"),
        ([StubClient(0, properties=ValueError("no data")), StubClient(1, properties=ValueError("no data"))], "no data"),
    ],
)
def test_a_start_at_which_nobody_enrols_ends_at_once(stubs, match):
    clients = ConnectedClients(2, EnrolmentConfig(connect_timeout_s=600))
    with pytest.raises(ConfigError, match=match):
        clients.enrol(StubFederation(stubs), wait=True)


def test_in_a_simulation_a_client_that_cannot_enrol_ends_the_start():
    clients = ConnectedClients(2, EnrolmentConfig(connect_timeout_s=600))
    federation = StubFederation([StubClient(0), StubClient(1, properties=ValueError("no data"))])
    federation.simulated = True
    with pytest.raises(ConfigError, match="no data"):
        clients.enrol(federation, wait=True)
