"""fedsel's own client behind Flower's messages: its answers are those of its functions, for one client and several."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from ray import cloudpickle

from clients.client import SelectionClient
from clients.flower_client import answer, answer_content
from clients.state import StateStore
from fedsel_app.config import ConfigError
from fedsel_app.messages.instructions import (
    CalibrateInstruction,
    EnrolInstruction,
    LocalTestInstruction,
    ProbeInstruction,
)
from fedsel_app.messages.records import clients_named, question
from fedsel_app.messages.scalars import Report
from fedsel_app.wiring.client import client_of, make_client_app
from fedsel_app.wiring.configuration import resolve
from tests.support.client_messages import NORMED, ask, changed, initial, instruction, message, read_answer
from tests.support.flower_state import task_identity

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")


@pytest.fixture
def federation(context):
    """A set-up with BatchNorm, a control variate and own test parts, and what its clients are built with."""
    return changed(context, run={"model": NORMED}, training={"solver": "scaffold"}, partition={"holdout_fraction": 0.2})


def train(**keys):
    return instruction(**{"reports": tuple(Report), "statistics": True} | keys)


def questions(federation):
    """An instruction of each kind with the arrays that go with it."""
    arrays = initial(federation)
    control = np.full(arrays[0].size, 0.01, np.float32)
    return {
        "enrol": (EnrolInstruction(label_counts=True), []),
        "train": (train(), [*arrays, control]),
        "calibrate": (CalibrateInstruction(1, 2), arrays),
        "probe": (ProbeInstruction(1, 2), arrays),
        "test": (LocalTestInstruction(1), arrays),
    }


def direct(context, instruction, arrays):
    """Numbers and arrays that the functions of Flower's client return."""
    client, config = SelectionClient(context), instruction.to_config()
    if instruction.message_type == "query":
        return client.get_properties(config), []
    if instruction.message_type == "train":
        sent, _, metrics = client.fit(arrays, config)
        return metrics, sent
    loss, examples, metrics = client.evaluate(arrays, config)
    return metrics | {"loss": loss, "examples": examples}, []


def comparable(numbers, arrays):
    """Everything but the seconds that were measured."""
    timeless = {key: value for key, value in numbers.items() if key != "compute_s"}
    return timeless, [(array.dtype, array.tobytes()) for array in arrays]


def client_of_each(federation, folder):
    """Clients with a state folder of this one's own."""
    return lambda client: SelectionClient(
        changed(federation, client=federation.client if client is None else client, store=StateStore(folder))
    )


@pytest.mark.parametrize("task", ["enrol", "train", "calibrate", "probe", "test"])
def test_an_answer_is_what_the_function_returns(federation, tmp_path, task):
    instruction, arrays = questions(federation)[task]
    expected = direct(changed(federation, store=StateStore(tmp_path / "direct")), instruction, arrays)
    content = question(instruction, ArrayRecord(arrays) if arrays else None)
    reply = answer(message(content, instruction.message_type), client_of_each(federation, tmp_path / "asked"))
    found = read_answer(reply.content)
    assert reply.metadata.message_type == instruction.message_type
    assert comparable(found.numbers, found.arrays) == comparable(*expected)
    states = [sorted(folder.rglob("*.npz")) for folder in (tmp_path / "direct", tmp_path / "asked")]
    assert [path.read_bytes() for path in states[0]] == [path.read_bytes() for path in states[1]]
    assert len(states[0]) == (task == "train")


@pytest.mark.parametrize("task", ["enrol", "train", "calibrate", "probe", "test"])
def test_several_clients_answer_as_each_would_alone(federation, tmp_path, task):
    instruction, arrays = questions(federation)[task]
    clients = (4, 0, 2)
    instructions = dict.fromkeys(clients, instruction)
    if task == "train":
        instructions[0] = train(kept=0.5, lr=0.01)
    content = question(instructions, ArrayRecord(arrays) if arrays else None)
    assert clients_named(content) == clients
    reply = answer_content(instruction.message_type, content, client_of_each(federation, tmp_path / "asked"))
    for client in clients:
        alone = changed(federation, client=client, store=StateStore(tmp_path / "direct"))
        found = read_answer(reply, client)
        assert comparable(found.numbers, found.arrays) == comparable(*direct(alone, instructions[client], arrays))


@pytest.mark.parametrize("task", ["enrol", "train", "probe"])
def test_of_several_clients_one_that_raises_has_its_error(federation, tmp_path, task):
    instruction, arrays = questions(federation)[task]
    build = client_of_each(federation, tmp_path)

    def broken(client):
        if client == 0:
            raise ValueError("out of order")
        return build(client)

    content = question(dict.fromkeys((1, 0, 2), instruction), ArrayRecord(arrays) if arrays else None)
    reply = answer_content(instruction.message_type, content, broken)
    assert reply["fedsel.0"] == ConfigRecord({"error": "out of order"})
    assert "arrays.0" not in reply
    with pytest.raises(RuntimeError, match=r"^out of order$"):
        read_answer(reply, 0)
    for client in (1, 2):
        assert read_answer(reply, client).numbers


def test_a_model_is_loaded_once_for_all_that_evaluate_it(federation, tmp_path, monkeypatch):
    loads, load = [], SelectionClient.load
    monkeypatch.setattr(SelectionClient, "load", lambda self, arrays: loads.append(self) or load(self, arrays))
    content = question(dict.fromkeys(range(4), ProbeInstruction(1, 2)), ArrayRecord(initial(federation)))
    reply = answer_content("evaluate", content, client_of_each(federation, tmp_path))
    assert len({read_answer(reply, client).numbers["loss"] for client in range(4)}) == 4
    assert len(loads) == 1


def test_a_single_client_that_raises_lets_the_exception_through(federation, tmp_path):
    content = question(LocalTestInstruction(1), ArrayRecord(initial(federation)))
    without = changed(federation, partition={"holdout_fraction": 0.0})
    with pytest.raises(ValueError, match="has no test part"):
        answer(message(content, "evaluate"), client_of_each(without, tmp_path))


def test_a_message_without_an_instruction_is_refused(federation, tmp_path):
    with pytest.raises(ValueError, match=r"no instruction of fedsel's\. Server and clients must run the same app"):
        answer(message(RecordDict(), "query"), client_of_each(federation, tmp_path))


def test_the_app_of_an_engine_builds_the_clients_of_its_run(tmp_path):
    config = resolve({"clients": 3, "cohort": 1, "state-dir": str(tmp_path)})
    context = Context(1, 2, {"partition-id": 1}, RecordDict(), {})
    sent_to_workers = cloudpickle.loads(cloudpickle.dumps(make_client_app(config)))
    assert ask(sent_to_workers, EnrolInstruction(), context=context).numbers["client"] == 1
    content = question(dict.fromkeys((2, 0), EnrolInstruction()))
    reply = make_client_app(config, pooled=True)(message(content, "query"), context).content
    assert [read_answer(reply, client).numbers["client"] for client in (2, 0)] == [2, 0]
    alone = make_client_app(config)(message(content, "query"), context).content
    with pytest.raises(RuntimeError, match="Client 1 answers for itself alone, and was asked for client 2"):
        read_answer(alone, 2)
    with pytest.raises(ConfigError, match="lacks 'partition-id'"):
        client_of(config, Context(1, 2, {}, RecordDict(), {}))
