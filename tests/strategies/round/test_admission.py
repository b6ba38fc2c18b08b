"""Which clients the model admits, in an enrolment's answer."""

import numpy as np
import pytest

from fedsel_app.config import ConfigError, EnrolmentConfig
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import EnrolInstruction
from strategies.round.clients import ConnectedClients
from strategies.round.replies.enrolment import other_units
from strategies.run_context import EVERYBODY, Admission
from tests.support.stubs import StubClient, StubFederation

MARKS = np.array([2.0, 0.5, -1.0, 3.0, 0.0, 1.0])
FROZEN = Admission(2, ("mask", "body.weight"), MARKS)


def marks(*values):
    return np.array(values, "<f8").tobytes()


def test_everybody_is_admitted_by_default():
    EVERYBODY.check(EnrolAnswer(0, 1))
    EVERYBODY.check(EnrolAnswer(0, 1, constants=marks(1.0)))


def test_a_client_with_too_few_examples_is_refused_by_its_number():
    with pytest.raises(ConfigError, match=r"client 7 at least 2 training examples.*It has 1"):
        FROZEN.check(EnrolAnswer(7, 1, constants=MARKS.tobytes()))


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (marks(2.0, 0.5, -1.0, 3.0, 0.1, 1.0), r"client 4 .* differ from the server's in body\.weight"),
        (marks(2.1, 0.5, -1.0, 3.0, 0.0, 1.0), "in mask"),
        (marks(2.0, 0.5, np.nan, 3.0, 0.0, 1.0), "in mask"),
        (marks(2.0, 0.5, -1.0), r"in mask, body\.weight"),
        (b"", r"in mask, body\.weight"),
        (b"seven b", r"in mask, body\.weight"),
    ],
)
def test_constants_that_differ_are_refused_by_name(sent, named):
    with pytest.raises(ConfigError, match=named):
        FROZEN.check(EnrolAnswer(4, 5, constants=sent))


def test_in_a_deployment_the_client_is_left_out_and_the_others_train(no_waiting):
    """Only if the model has constants are they asked for."""
    answers = [EnrolAnswer(0, 5, constants=MARKS.tobytes()), EnrolAnswer(1, 5), EnrolAnswer(2, 1)]
    stubs = [StubClient(answer.client, properties=answer.to_config()) for answer in answers]
    clients = ConnectedClients(3, EnrolmentConfig(connect_timeout_s=1), admission=FROZEN)
    enrolled = clients.enrol(StubFederation(stubs), wait=True)
    assert [answer.client for answer in enrolled] == list(clients.nodes) == [0]
    refused = [conflict.outcome for conflict in clients.enrolment.identity_conflicts]
    assert sorted("training examples" in outcome for outcome in refused) == [False, True]
    assert stubs[0].told("query") == [EnrolInstruction(constants=True)]


def test_moments_are_added_over_the_clients_with_data_of_their_own_and_sent_back_as_the_schema():
    """One channel: examples, sum and sum of squares. Client 1 has a part of the server's data, and is left out then."""
    summed = []

    def scale(moments):
        summed.append(moments.tolist())
        return "scaled"

    own = {0: marks(5.0, 2.0, 3.0), 2: marks(7.0, -4.0, 6.0)}
    stubs = [
        StubClient(
            client, properties=EnrolAnswer(client, 5, own_data=client in own, moments=own.get(client, b"")).to_config()
        )
        for client in range(3)
    ]
    admission = Admission(schema="plain", scale=scale, channels=1)
    clients = ConnectedClients(3, EnrolmentConfig(connect_timeout_s=1), admission=admission)
    assert [answer.client for answer in clients.enrol(StubFederation(stubs), wait=True)] == [0, 2]
    assert summed == [[12.0, -2.0, 9.0]]
    assert [[asked.schema for asked in stub.told("query")] for stub in stubs] == [
        ["plain", "scaled"], ["plain"], ["plain", "scaled"],
    ]  # fmt: skip
    assert [conflict.client for conflict in clients.enrolment.identity_conflicts] == [1]


def sums_of(*columns):
    x = np.stack(columns, axis=1)
    return np.array([len(x), *x.sum(axis=0), *np.square(x).sum(axis=0)])


@pytest.mark.parametrize(
    ("weights", "odd"),
    [
        ([70, 80, 60], []),
        ([70, 7e4, 75], [1]),
        ([7e4, 6e4, 70], [2]),
        ([70, 7e4], [0, 1]),
        ([70, 7e4, 6e4, 75], [0, 1, 2, 3]),
        ([70], []),
    ],
)
def test_a_client_with_another_unit_is_told_by_its_column(weights, odd):
    """The second column is constant at each client, and the third has no unit."""
    near, ones = np.linspace(0.6, 1.4, 20), np.ones(20)
    sums = {client: sums_of(weight * near, client * ones, weight * near) for client, weight in enumerate(weights)}
    said = other_units(sums, ("weight", "site", ""))
    assert [sentence.partition(":")[0] for sentence in said] == [
        f"Check the unit of column 'weight' of client {client}" for client in odd
    ]


def test_degrees_of_another_zero_are_another_unit_and_shares_of_a_rare_value_are_none():
    degrees = [15 + 8 * np.linspace(-1, 1, 1000), 20 + 9 * np.linspace(-1, 1, 1000), 290 + 8 * np.linspace(-1, 1, 1000)]
    shares = [np.arange(1000) < count for count in (300, 200, 1)]
    sums = {client: sums_of(*columns) for client, columns in enumerate(zip(degrees, shares, strict=True))}
    [sentence] = other_units(sums, ("degrees", "rare"))
    assert (
        sentence
        == "Check the unit of column 'degrees' of client 2: its mean is 290, and the median of the clients' means 20."
    )
