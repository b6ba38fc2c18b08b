"""Messages: each arrives as it was sent, and the values of clients are checked."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsel_app.config import ConfigError
from fedsel_app.messages.answers import LARGEST, MOST_EXAMPLES, EnrolAnswer, EvaluateAnswer, TrainAnswer
from fedsel_app.messages.instructions import INSTRUCTIONS, ProbeInstruction, TrainInstruction, read_instruction
from fedsel_app.messages.scalars import Report
from fedsel_app.wire.codec import WireError
from simulation.apps.client.messages import EVALUATION_LOSSES, reported_loss
from strategies.round.federation import Reply
from strategies.round.replies.values import probed

FINITE, COUNT = st.floats(allow_nan=False, allow_infinity=False), st.integers(1, MOST_EXAMPLES)
NUMBER = st.floats(-LARGEST, LARGEST)
VALUES = {
    bool: st.booleans(),
    int: st.integers(0, 2**62),
    int | None: st.none() | st.integers(0, 2**62),
    float: FINITE,
    str: st.text(),
    str | None: st.none() | st.text(),
    int | None: st.none() | st.integers(-(2**63), 2**63 - 1),
    bytes | None: st.none() | st.binary(),
    tuple[Report, ...]: st.lists(st.sampled_from(Report), unique=True).map(tuple),
}
TRAIN = TrainInstruction(3, "a1", 0.1, 0.2, 0.9, True)


def any_of(kind):
    return st.builds(kind, **{field.name: VALUES[field.type] for field in fields(kind)})


def is_carried(scalars):
    """True if Flower can carry these in a config or metrics dict."""
    return all(type(key) is str and type(value) in (bool, bytes, float, int, str) for key, value in scalars.items())


@settings(max_examples=10)
@given(st.one_of([any_of(kind) for kind in INSTRUCTIONS]))
def test_an_instruction_comes_back_as_it_was_sent(instruction):
    config = instruction.to_config()
    assert is_carried(config)
    assert read_instruction(config | {"another": 1}, instruction.message_type) == instruction


@pytest.mark.parametrize(
    ("metrics", "training", "evaluation"),
    [
        ({"loss": 1, "train_loss": 2.0, "eval_loss": 3.0}, 2.0, 3.0),
        ({"train-loss": 0.5, "eval-loss": 0.25}, 0.5, 0.25),
        ({"val_loss": 4.0}, None, 4.0),
        ({"loss": -1.0}, -1.0, -1.0),
        ({"loss": -1e300, "train_loss": True, "eval_loss": [1.0]}, None, None),
    ],
)
def test_a_users_loss_is_found_by_its_usual_names(metrics, training, evaluation):
    for found, expected in (
        (reported_loss(metrics), training),
        (reported_loss(metrics, EVALUATION_LOSSES), evaluation),
    ):
        assert found == expected or (expected is None and np.isnan(found))


def test_an_instruction_for_another_message_is_refused():
    for config, message_type, said in (
        (ProbeInstruction(1, 2).to_config(), "train", r"must be train or .*calibrate\. Got 'probe'"),
        ({}, "evaluate", r"must be probe or test\. Got 'None'"),
    ):
        with pytest.raises(ValueError, match=said):
            read_instruction(config, message_type)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server_round", 3.0),
        ("learning_rate", False),
        ("keep_state", 1),
        ("run_key", 7),
        ("reports", "loss"),
    ],
)
def test_an_instruction_with_another_type_is_refused(name, value):
    with pytest.raises(ValueError, match=f"The instruction train's '{name}' must be (a|true|names)"):
        TrainInstruction.from_config(TRAIN.to_config() | {name: value})


# Answers


@given(st.builds(EnrolAnswer, st.integers(0, 4), COUNT, st.binary()))
def test_an_enrolment_comes_back_as_it_was_sent(answer):
    properties = answer.to_config()
    assert is_carried(properties)
    assert EnrolAnswer.from_properties(properties, clients=5) == answer


@pytest.mark.parametrize("client", [-1, 2, "0", True])
def test_an_enrolment_without_a_partition_id_of_the_run_is_refused(client):
    properties = EnrolAnswer(client, 10).to_config()
    with pytest.raises(ConfigError, match=f"partition id {client!r}, but 'clients' is 2"):
        EnrolAnswer.from_properties(properties, clients=2)


@pytest.mark.parametrize("number", [None, 0, MOST_EXAMPLES + 1, True])
def test_an_enrolment_without_its_size_is_refused(number):
    properties = EnrolAnswer(1, 10).to_config() | {"examples": number}
    with pytest.raises(ConfigError, match="Client 1 did not report its 'examples'"):
        EnrolAnswer.from_properties(properties, clients=2)


def test_label_counts():
    sent = np.array([3, 0, 2], "<i8").tobytes()
    np.testing.assert_array_equal(EnrolAnswer(0, 3, sent).counts(3), [3, 0, 2])
    negative, absurd = (np.array([3, 0, count], "<i8").tobytes() for count in (-1, 4))
    for wrong in (sent[:-1], sent + b"\0", "abc", 3, negative, absurd):
        properties = EnrolAnswer(0, 3, wrong).to_config()
        with pytest.raises(ConfigError, match=r"Client 0 (did not send the|sent numbers of) examples of each"):
            EnrolAnswer.from_properties(properties, clients=1).counts(3)


@given(
    st.builds(
        TrainAnswer,
        loss=st.floats(-LARGEST, LARGEST),
        work_steps=st.floats(0.0, MOST_EXAMPLES),
        compute_s=st.floats(0.0, LARGEST),
        upload_bytes=st.integers(0, 2**50),
        upload_s=st.floats(0.0, LARGEST),
        reports=st.dictionaries(st.sampled_from(Report), st.floats(0.0, LARGEST)),
    )
)
def test_an_answer_to_training_comes_back_as_it_was_sent(answer):
    metrics = answer.to_config()
    assert is_carried(metrics)
    assert TrainAnswer.from_metrics(metrics, answer.reports) == answer


@pytest.mark.parametrize(
    ("name", "least"),
    [("loss", r"-1.84e\+19"), ("work_steps", "0"), ("rms_loss", "0"), ("effective_steps", r"-1.84e\+19")],
)
@pytest.mark.parametrize("number", ["1.0", True, float("nan"), -1e300])
def test_an_answer_without_its_finite_numbers_is_refused(name, least, number):
    metrics = TrainAnswer(1.0, 2.0, reports={Report.RMS_LOSS: 1.0}).to_config() | {name: number}
    bounds = rf"from {least} to 1(.84e\+19|e\+09)"
    with pytest.raises(WireError, match=rf"^the update's '{name}' must be a number {bounds}\. Got"):
        TrainAnswer.from_metrics(metrics, [Report.RMS_LOSS, *([Report(name)] if name in list(Report) else [])])


def test_an_unknown_loss_is_accepted_only_if_it_may_be_unknown():
    metrics = TrainAnswer(float("nan"), 2.0).to_config()
    assert np.isnan(TrainAnswer.from_metrics(metrics, loss_optional=True).loss)
    for loss, optional in ((float("nan"), False), (float("inf"), True), (-1e300, True), ("nan", True)):
        with pytest.raises(WireError, match="'loss' must be a number"):
            TrainAnswer.from_metrics(metrics | {"loss": loss}, loss_optional=optional)


@pytest.mark.parametrize("value", ["fast", True, float("nan"), -1.0, 1e300])
def test_a_time_or_a_norm_that_is_impossible_is_unknown(value):
    times = dict.fromkeys(("compute_s", "upload_bytes", "upload_s", "norm", "control_norm"), value)
    assert TrainAnswer.from_metrics(TrainAnswer(1.0, 2.0).to_config() | times) == TrainAnswer(1.0, 2.0)
    assert TrainAnswer.from_metrics({"loss": 1.0, "work_steps": 2.0}) == TrainAnswer(1.0, 2.0)


SHARES = st.dictionaries(st.sampled_from(["accuracy", "f1_macro", "f1_3", "mine"]), st.floats(0.0, 1.0))


@given(st.floats(-LARGEST, LARGEST), COUNT, SHARES)
def test_an_answer_to_an_evaluation_comes_back_as_it_was_sent(loss, examples, scores):
    answer = EvaluateAnswer(loss, examples, scores)
    assert is_carried(answer.to_config())
    assert answer.to_config() == {"loss": loss, "examples": examples} | scores
    assert EvaluateAnswer.from_evaluation(loss, examples, scores, ["auroc", *scores]) == answer


@pytest.mark.parametrize("loss", [-1e300, float("nan"), True])
def test_an_impossible_loss_is_unknown(loss):
    answer = EvaluateAnswer.from_evaluation(loss, 3, {"accuracy": 0.5}, ["accuracy"])
    assert np.isnan(answer.loss)
    assert (answer.examples, answer.scores) == (3, {"accuracy": 0.5})
    with pytest.raises(
        WireError,
        match=r"a loss of .* over 1 examples; the loss must be -1.84e\+19 to 1.84e\+19, over 1 to 1000000000",
    ):
        probed(Reply(loss=loss, examples=1))


@pytest.mark.parametrize("examples", [0, MOST_EXAMPLES + 1, 2.0])
def test_an_answer_about_no_or_too_many_examples_is_unknown(examples):
    assert EvaluateAnswer.from_evaluation(1.0, examples, {}).examples == 0
    with pytest.raises(WireError, match=f"a loss of 1.0 over {examples} examples; the loss must be -1.84"):
        probed(Reply(loss=1.0, examples=examples))


@pytest.mark.parametrize(
    ("score", "value"),
    [
        *(("accuracy", value) for value in ("0.5", 1.1, float("nan"))),
        *(("auroc_2", 1.1), ("balanced_accuracy", -0.1), ("r2", 1.1), ("mcc", 1.1), ("rmse", -0.1), ("mine", 1e299)),
    ],
)
def test_an_impossible_score_is_undefined(score, value):
    assert EvaluateAnswer.from_evaluation(1.0, 2, {score: value}, [score]).scores == {}


@pytest.mark.parametrize(("score", "value"), [("r2", -9.0), ("mcc", -0.5), ("rmse", 9.0), ("mine", -9.0), ("kappa", 1)])
def test_a_score_may_be_what_its_name_allows(score, value):
    assert EvaluateAnswer.from_evaluation(1.0, 2, {score: value}, [score]).scores == {score: value}
