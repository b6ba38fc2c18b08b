"""Messages: each comes back as it was sent, and what a client says is checked."""

from dataclasses import MISSING, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import ConfigError
from fedsel_app.messages import (
    EVALUATION_LOSSES,
    LARGEST,
    MOST_EXAMPLES,
    CalibrateInstruction,
    EnrolAnswer,
    EnrolInstruction,
    LocalTestAnswer,
    LocalTestInstruction,
    ProbeAnswer,
    ProbeInstruction,
    Report,
    TrainAnswer,
    TrainInstruction,
    read_evaluate_instruction,
    read_fit_instruction,
    reported_loss,
)
from fedsel_app.wire.codec import WireError

INSTRUCTIONS = [EnrolInstruction, TrainInstruction, CalibrateInstruction, ProbeInstruction, LocalTestInstruction]
FINITE, COUNT = st.floats(allow_nan=False, allow_infinity=False), st.integers(1, MOST_EXAMPLES)
NUMBER = st.floats(-LARGEST, LARGEST)
VALUES = {
    bool: st.booleans(),
    int: st.integers(0, 2**62),
    float: FINITE,
    str: st.text(),
    tuple[Report, ...]: st.lists(st.sampled_from(Report), unique=True).map(tuple),
}
TRAIN = TrainInstruction(3, "a1", 0.1, 0.2, 0.9, True)


def any_of(kind):
    return st.builds(kind, **{field.name: VALUES[field.type] for field in fields(kind)})


def is_carried(scalars):
    """True if Flower can carry these in a config or metrics dict."""
    return all(type(key) is str and type(value) in (bool, bytes, float, int, str) for key, value in scalars.items())


@given(st.one_of([any_of(kind) for kind in INSTRUCTIONS]))
def test_an_instruction_comes_back_as_it_was_sent(instruction):
    config = instruction.to_config()
    assert is_carried(config)
    assert type(instruction).from_config(config | {"another": 1}) == instruction


@given(any_of(TrainInstruction), any_of(CalibrateInstruction), any_of(ProbeInstruction), any_of(LocalTestInstruction))
def test_the_kind_of_an_instruction_comes_back_too(train, calibrate, probe, test):
    assert [read_fit_instruction(each.to_config()) for each in (train, calibrate)] == [train, calibrate]
    assert [read_evaluate_instruction(each.to_config()) for each in (probe, test)] == [probe, test]


def test_each_instruction_says_the_message_that_carries_it():
    kinds = {kind.task: kind.message_type for kind in INSTRUCTIONS}
    expected = {"enrol": "query", "train": "train", "calibrate": "train", "probe": "evaluate", "test": "evaluate"}
    assert kinds == expected


@pytest.mark.parametrize(
    ("metrics", "training", "evaluation"),
    [
        ({"loss": 1, "train_loss": 2.0, "eval_loss": 3.0}, 2.0, 3.0),
        ({"train-loss": 0.5, "eval-loss": 0.25}, 0.5, 0.25),
        ({"val_loss": 4.0}, None, 4.0),
        ({"loss": -1.0, "train_loss": True, "eval_loss": [1.0]}, None, None),
    ],
)
def test_a_users_loss_goes_by_the_names_that_users_give_it(metrics, training, evaluation):
    for found, expected in (
        (reported_loss(metrics), training),
        (reported_loss(metrics, EVALUATION_LOSSES), evaluation),
    ):
        assert found == expected or (expected is None and np.isnan(found))


def test_an_instruction_for_another_message_is_refused():
    with pytest.raises(ValueError, match=r"for the task train or calibrate here\. Got 'probe'"):
        read_fit_instruction(ProbeInstruction(1, 2).to_config())
    with pytest.raises(ValueError, match=r"for the task probe or test here\. Got 'None'"):
        read_evaluate_instruction({})


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_what_has_a_default_may_be_missing_and_nothing_else(kind):
    required = {field.name for field in fields(kind) if field.default is MISSING}
    given = {field.name: getattr(TRAIN, field.name, 1) for field in fields(kind) if field.name in required}
    assert kind.from_config(given) == kind(**given)
    for name in required:
        with pytest.raises(ValueError, match=f"came without '{name}'. Server and clients must run the same app"):
            kind.from_config({key: value for key, value in given.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server_round", "3"),
        ("server_round", 3.0),
        ("server_round", True),
        ("learning_rate", "0.1"),
        ("learning_rate", False),
        ("keep_state", 1),
        ("run_key", 7),
        ("reports", 1),
        ("reports", "loss"),
    ],
)
def test_an_instruction_with_another_type_is_refused(name, value):
    with pytest.raises(ValueError, match=f"'{name}' must be of type|not a valid Report"):
        TrainInstruction.from_config(TRAIN.to_config() | {name: value})


def test_a_whole_number_is_a_float():
    assert TrainInstruction.from_config(TRAIN.to_config() | {"learning_rate": 1}).learning_rate == 1.0


# Answers


@given(st.builds(EnrolAnswer, st.integers(0, 4), COUNT, st.binary()))
def test_an_enrolment_comes_back_as_it_was_sent(answer):
    properties = answer.to_properties()
    assert is_carried(properties)
    assert EnrolAnswer.from_properties(properties, clients=5) == answer


@pytest.mark.parametrize("client", [-1, 2, "0", None, 1.0, True, False])
def test_an_enrolment_without_a_partition_id_of_the_run_is_refused(client):
    properties = EnrolAnswer(client, 10).to_properties()
    with pytest.raises(ConfigError, match=f"partition id {client!r}, but 'clients' is 2"):
        EnrolAnswer.from_properties(properties, clients=2)


@pytest.mark.parametrize("number", [None, 0, -1, MOST_EXAMPLES + 1, "10", 10.0, True])
def test_an_enrolment_without_its_size_is_refused(number):
    properties = EnrolAnswer(1, 10).to_properties() | {"examples": number}
    with pytest.raises(ConfigError, match="Client 1 did not tell its 'examples'"):
        EnrolAnswer.from_properties(properties, clients=2)


def test_label_counts():
    sent = np.array([3, 0, 2], "<i8").tobytes()
    np.testing.assert_array_equal(EnrolAnswer(0, 3, sent).counts(3), [3, 0, 2])
    negative, absurd = (np.array([3, 0, count], "<i8").tobytes() for count in (-1, 4))
    for wrong in (sent[:-1], sent + b"\0", "abc", 3, negative, absurd):
        properties = EnrolAnswer(0, 3, wrong).to_properties()
        with pytest.raises(ConfigError, match=r"Client 0 (did not send the|sent numbers of) examples of each"):
            EnrolAnswer.from_properties(properties, clients=1).counts(3)


@given(
    st.builds(
        TrainAnswer,
        loss=st.floats(0.0, LARGEST),
        work_steps=st.floats(0.0, MOST_EXAMPLES),
        compute_s=st.floats(0.0, LARGEST),
        upload_bytes=st.integers(0, 2**50),
        upload_s=st.floats(0.0, LARGEST),
        reports=st.dictionaries(st.sampled_from(Report), st.floats(0.0, LARGEST)),
    )
)
def test_an_answer_to_training_comes_back_as_it_was_sent(answer):
    metrics = answer.to_metrics()
    assert is_carried(metrics)
    assert TrainAnswer.from_metrics(metrics, answer.reports) == answer


@pytest.mark.parametrize("name", ["loss", "work_steps", "rms_loss"])
@pytest.mark.parametrize("number", [None, 1, "1.0", b"1", True, float("nan"), float("inf"), -1e300])
def test_an_answer_without_its_finite_numbers_is_refused(name, number):
    metrics = TrainAnswer(1.0, 2.0, reports={Report.RMS_LOSS: 1.0}).to_metrics() | {name: number}
    if number is None:
        del metrics[name]
    with pytest.raises(WireError, match=rf"without the finite number '{name}' \(at most 1.84e\+19\)"):
        TrainAnswer.from_metrics(metrics, [Report.RMS_LOSS])


@pytest.mark.parametrize("name", ["loss", "rms_loss"])
def test_a_negative_loss_is_refused(name):
    metrics = TrainAnswer(1.0, 2.0, reports={Report.RMS_LOSS: 1.0}).to_metrics() | {name: -0.5}
    with pytest.raises(WireError, match=f"'{name}' of -0.5, which cannot be negative"):
        TrainAnswer.from_metrics(metrics, [Report.RMS_LOSS])


@pytest.mark.parametrize("work_steps", [-1.0, MOST_EXAMPLES + 1.0])
def test_impossible_work_is_refused(work_steps):
    with pytest.raises(WireError, match=f"took {work_steps} local steps; 0 to {MOST_EXAMPLES} are possible"):
        TrainAnswer.from_metrics(TrainAnswer(1.0, work_steps).to_metrics())


@pytest.mark.parametrize("value", [None, "fast", b"", True, float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_unknown(value):
    times = dict.fromkeys(("compute_s", "upload_bytes", "upload_s"), value)
    assert TrainAnswer.from_metrics(TrainAnswer(1.0, 2.0).to_metrics() | times) == TrainAnswer(1.0, 2.0)
    assert TrainAnswer.from_metrics({"loss": 1.0, "work_steps": 2.0}) == TrainAnswer(1.0, 2.0)


@given(st.floats(0.0, LARGEST), COUNT, st.none() | st.floats(0.0, 1.0))
def test_an_answer_to_an_evaluation_comes_back_as_it_was_sent(loss, examples, accuracy):
    assert ProbeAnswer(loss, examples).to_evaluation() == (loss, examples, {})
    assert ProbeAnswer.from_evaluation(loss, examples) == ProbeAnswer(loss, examples)
    tested = LocalTestAnswer(loss, examples, accuracy)
    assert is_carried(tested.to_evaluation()[2])
    assert LocalTestAnswer.from_evaluation(*tested.to_evaluation()) == tested


@pytest.mark.parametrize("loss", [-1.0, float("nan"), float("inf"), 1e300])
def test_a_probe_without_a_loss_is_refused(loss):
    with pytest.raises(WireError, match=r"a loss of .*; it must be a number from 0 to 1.84e\+19"):
        ProbeAnswer.from_evaluation(loss, 1)


@pytest.mark.parametrize("examples", [-1, 0, MOST_EXAMPLES + 1])
def test_an_answer_about_no_or_too_many_examples_is_refused(examples):
    with pytest.raises(WireError, match=f"a loss of {examples} examples; they must be 1 to {MOST_EXAMPLES}"):
        ProbeAnswer.from_evaluation(1.0, examples)
    assert not LocalTestAnswer(1.0, examples, None).credible


@pytest.mark.parametrize("accuracy", [1, "0.5", True, 1.1, 1e299, -0.1, float("nan")])
def test_an_accuracy_that_cannot_be_is_undefined(accuracy):
    metrics = LocalTestAnswer(1.0, 2, accuracy).to_evaluation()[2]
    assert LocalTestAnswer.from_evaluation(1.0, 2, metrics).accuracy is None
