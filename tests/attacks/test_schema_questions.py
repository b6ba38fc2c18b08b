"""U5, U6: a server asks a client about its own data, by false schemas and their refusals, and by tiny updates."""

import json

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from fedsel_app import caches, flower_client
from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import MISFIT, load
from fedsel_app.data.mapping import schema_of
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import EnrolInstruction
from fedsel_app.messages.records import fedsel_config, question
from fedsel_app.wiring.configuration import resolve
from tests.support.flower_state import task_identity
from tests.support.own_files import PLAIN, nodes, run

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")

ROWS = [(41, "Ulm", "ill"), (50, "Kiel", "well"), (59, "Ulm", "ill"), (62, "Bonn", "well")]
TABLE = "age,city,label\n" + "".join(f"{age},{city},{label}\n" for age, city, label in 3 * ROWS)


@pytest.fixture
def hospital(tmp_path):
    """A client's table, a server's honest schema of it as a dict, and the client's answer to a question.

    `ask(schema, run, owner's settings, server's settings, **question)` raises what the client tells the server.
    """
    (tmp_path / "mine.csv").write_text(TABLE)
    (tmp_path / "server.csv").write_text(TABLE)
    honest = DataConfig(data="csv", data_path=str(tmp_path / "server.csv"), data_arguments='train=""')
    schema = json.loads(schema_of(load(honest, 1), honest).text)

    def ask(claims, run=1, own=None, server=None, **asked):
        node = {"partition-id": 0, "num-partitions": 1, "data": "csv", "data-path": str(tmp_path / "mine.csv")}
        node |= {"state-dir": str(tmp_path / "states")} | (own or {})
        context = Context(
            run, 7, node, RecordDict(), resolve(PLAIN | {"clients": 1, "cohort": 1} | (server or {})).values()
        )
        instruction = EnrolInstruction(schema=json.dumps(schema | claims), **{"moments": True} | asked)
        message = Message(question(instruction), 7, "query")
        message.metadata.__dict__["_message_id"] = "1"
        with caches.of_a_run(run):
            answer = flower_client.app(message, context)
        return EnrolAnswer.from_properties(fedsel_config(answer.content), 1)

    return schema, ask


def columns_with(schema, name, **fields):
    """The columns of a schema, of which one has other fields."""
    return {"columns": [column | (fields if column["name"] == name else {}) for column in schema["columns"]]}


PROTECTED = {"weighting": "uniform", "clients": 3, "cohort": 3}


def of_ages(schema):
    """The schema with a category of 130 ages in place of the number."""
    many = [str(age) for age in range(130)]
    return columns_with(schema, "age", kind="category", categories=many) | {"samples": {"": ["float32", 133]}}


MISFITS = {
    "the counts of a class": lambda schema: {"names": ["ill", "fit"]},
    "a line and a value": lambda schema: columns_with(schema, "city", categories=["Ulm", "Kiel"]),
    "a column": lambda schema: {"columns": [column for column in schema["columns"] if column["name"] != "age"]},
    "the histogram of a column": of_ages,
    "the sign of a difference": lambda schema: {"mean": [50.0, 0.0, 0.0, 0.0], "std": [1e-3, 1.0, 1.0, 1.0]},
}  # fmt: skip


@pytest.mark.parametrize("lie", MISFITS.values(), ids=MISFITS)
def test_a_misfit_tells_only_that_it_does_not_fit(hospital, lie):
    """It told the examples of a class, the line of a value, and the exact histogram of each column."""
    schema, ask = hospital
    with pytest.raises(ConfigError) as told:
        ask(lie(schema))
    assert str(told.value) == f"Client 0: {MISFIT}"
    assert told.value.__cause__.__cause__ is not None  # what the client's own log has


@pytest.mark.parametrize("fits", [True, False])
def test_a_client_answers_one_question_a_run(hospital, fits):
    """73 questions told 71 values. The same question again, and the normalisation after it, are no other question."""
    _, ask = hospital
    scaled = {"mean": [53.0, 0.0, 0.0, 0.0], "std": [9.0, 1.0, 1.0, 1.0]}
    if fits:
        assert [ask({}).examples, ask({}).examples, ask(scaled, moments=False).examples] == [12, 12, 12]
        others = scaled | {"mean": [53.1, 0.0, 0.0, 0.0]}, {"classes": 3, "names": ["a", "ill", "well"]}, {}
    else:
        with pytest.raises(ConfigError, match=MISFIT):
            ask({"names": ["ill", "fit"]})
        others = ({"names": ["ill", "well"]},)
    for other in others:
        with pytest.raises(ConfigError, match="The server has stated another schema in this run"):
            ask(other)
    assert ask({}, run=2).examples == 12


@pytest.mark.parametrize(
    ("own", "server"),
    [
        ({"share-moments": False}, {}),
        ({}, PROTECTED | {"dp-clip-norm": 1.0}),
        ({}, PROTECTED | {"aggregation": "median"}),
    ],
)
def test_a_client_itself_refuses_moments(hospital, own, server):
    """Only the server's own code kept the promise of the page."""
    _, ask = hospital
    for place, claims in enumerate([{}, {"mean": [53.0, 0.0, 0.0, 0.0], "std": [9.0, 1.0, 1.0, 1.0]}], 1):
        with pytest.raises(ConfigError, match=r"State on the server the normalisation .* share-moments=false"):
            ask(claims, place, own, server)


def test_a_category_of_numbers_is_named_by_the_owner(hospital):
    schema, ask = hospital
    assert ask(of_ages(schema), own={"data-arguments": 'category=["age"]'}).examples == 12


def test_the_owner_reads_what_the_server_was_told(hospital, capsys):
    _, ask = hospital
    answer = ask({}, label_counts=True)
    assert np.frombuffer(answer.moments, "<f8")[0] == 12
    assert (
        "Client 0 tells the server of its data: 12 training examples, their number in each class, sums over them"
        in (capsys.readouterr().out)
    )
    with pytest.raises(ValueError, match="its 'share-label-counts' is false"):
        ask({}, 2, {"share-label-counts": False}, label_counts=True)


@pytest.mark.parametrize(
    ("asked", "least", "count"),
    [
        ({"batch_size": 6}, 13, 12),
        ({"batch_size": 1, "holdout_fraction": 0.9, "local_steps": 40, "local_epochs": 0}, 2, 1),
        (
            {"batch_size": 1, "strategy": "hetero-select", "probe_batches": 1, "local_steps": 40, "local_epochs": 0},
            2,
            1,
        ),
    ],
    ids=["two steps of 6", "many steps on one example", "a probe of one example"],
)
def test_an_owner_sets_the_least_number_of_examples_behind_an_answer(hospital, tmp_path, asked, least, count):
    """U6: an update of one step on one example is that example, and so is one of many steps. A loss tells it, too."""
    own = nodes(tmp_path, *[tmp_path / "mine.csv"] * 2, data="csv")
    own = [node | {"least-update-examples": each} for node, each in zip(own, (count, least), strict=True)]
    server = {"data": "csv", "data_path": str(tmp_path / "server.csv"), "data_arguments": 'train=""'}
    _, [row], _ = run(tmp_path, own, **server | asked)
    assert row["aggregated"] == [0]
    [failure] = row["failures"]
    assert failure["client"] == 1
    assert f"from {count} of its examples, and its owner's 'least-update-examples' is {least}" in failure["reason"]
