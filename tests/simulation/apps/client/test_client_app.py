"""Users' own apps behind `client_app`: enrolment, losses, functions, and an app without fedsel's server."""

from contextlib import suppress

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsel_app.config import ConfigError
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.messages.instructions import EnrolInstruction
from fedsel_app.messages.records import content_arrays, fedsel_config
from fedsel_app.messages.scalars import Report
from fedsel_app.wire.codec import decode
from simulation.apps.client.client_app import client_app
from tests.support.flower_state import task_identity
from tests.support.own_app import app_instruction, by_name, data, losses, model, named_question, node, register, trained

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")


def answered(app, context, *question, **options):
    """Numbers and arrays of the answer of an app of the Message API."""
    reply = app(named_question(*question, **options), context)
    numbers = fedsel_config(reply.content)
    numbers.pop("compute_s", None)
    return numbers, content_arrays(reply.content, "arrays")


def own_losses(context, arrays):
    listed = arrays.to_numpy_ndarrays() if isinstance(arrays, ArrayRecord) else arrays
    return losses(listed, *data(context.node_config["partition-id"]))


def test_an_error_of_the_users_code_passes_through(tmp_path):
    app = client_app()

    @app.train()
    def train(message, context):
        return Message(Error(2, "no data today"), reply_to=message)

    reply = app(named_question(app_instruction(), model()), node(0, tmp_path))
    assert (reply.error.code, reply.error.reason) == (2, "no data today")
    assert not list(tmp_path.rglob("*.npz"))


def test_a_training_that_returns_nothing_is_told_what_it_must_return(tmp_path):
    app = client_app()
    app.train()(lambda message, context: None)
    with pytest.raises(TypeError, match=r"must return Message\(content, reply_to=message\). It returned None"):
        app(named_question(app_instruction(), model()), node(0, tmp_path))


def test_a_function_of_another_name_is_refused_with_the_names_that_there_are():
    names = r"takes the functions examples, losses, label_counts, gradient_deviation, and mods\. Got loss\."
    with pytest.raises(ConfigError, match=names):
        client_app(loss=own_losses)


# Enrolment


@pytest.mark.parametrize("function", ["examples", "label_counts"])
@pytest.mark.parametrize("returned", [12.5, [3.0, 0.5], float("nan"), [float("inf"), 1.0]])
def test_a_part_of_an_example_is_refused(function, returned):
    """12.5 examples were counted as 12."""
    app = client_app(**{function: lambda context: returned})
    with pytest.raises(ValueError, match=rf"^The function '{function}' must return whole numbers\. It returned"):
        answered(app, node(3), EnrolInstruction(True))


def test_a_client_without_a_partition_id_is_told_so():
    context = Context(1, 2, {}, RecordDict(), {})
    with pytest.raises(ValueError, match=r"`client_app` needs a 'partition-id' in the node configuration"):
        client_app()(named_question(EnrolInstruction()), context)


# Losses


@pytest.mark.parametrize("name", ["eval_loss", "eval-loss", "loss", "val_loss"])
def test_the_loss_before_training_is_the_users_evaluation_within_one_lifespan(tmp_path, name):
    """An evaluation within a training is a message of its own, of the type evaluate, and enters no lifespan."""
    lives, seen, app = [], [], client_app()
    register(app, seen)
    inner = client_app()

    @app.lifespan()
    def lifespan(context):
        lives.append("begins")
        yield
        lives.append("ends")

    numbers, _ = answered(app, node(1, tmp_path), app_instruction(reports=(Report.RMS_LOSS,)), model())
    assert numbers["rms_loss"] == pytest.approx(own_losses(node(1), model()).mean())
    assert [(kind, list(records)) for _, kind, records in seen] == [
        ("evaluate", ["config", "arrays"]),
        ("train", ["config", "arrays"]),
    ]
    assert lives == ["begins", "ends"]

    @inner.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"m": MetricRecord({name: 0.75, "accuracy": 1.0})}), reply_to=message)

    @inner.train()
    def train(message, context):
        return Message(message.content, reply_to=message)

    numbers, _ = answered(inner, node(1, tmp_path / "inner"), app_instruction(reports=(Report.INITIAL_LOSS,)), model())
    assert numbers["initial_loss"] == 0.75


def test_user_code_may_empty_the_records_that_it_gets(tmp_path):
    """As `to_torch_state_dict(keep_input=False)` does."""
    app = client_app(gradient_deviation=lambda context, arrays: len(arrays.to_numpy_ndarrays(keep_input=False)))

    @app.evaluate()
    def evaluate(message, context):
        message.content["arrays"].to_numpy_ndarrays(keep_input=False)
        return Message(RecordDict({"metrics": MetricRecord({"loss": 0.5})}), reply_to=message)

    @app.train()
    def train(message, context):
        arrays = message.content["arrays"].to_numpy_ndarrays(keep_input=False)
        return Message(RecordDict({"arrays": by_name(trained(arrays, 1))}), reply_to=message)

    asked = app_instruction(reports=(Report.RMS_LOSS, Report.GRADIENT_DEVIATION))
    found = answered(app, node(1, tmp_path / "a"), asked, model())
    expected = answered(register(client_app(), []), node(1, tmp_path / "b"), app_instruction(), model())
    assert (found[0]["rms_loss"], found[0]["gradient_deviation"]) == (0.5, 6.0)
    assert found[1][0].tobytes() == expected[1][0].tobytes()


# Functions


def test_losses_and_the_gradient_deviation_are_reported(tmp_path):
    models = []

    def deviation(context, arrays):
        models.append(arrays.to_numpy_ndarrays())
        return 2.5

    app = register(client_app(losses=own_losses, gradient_deviation=deviation), seen := [])
    asked = app_instruction(reports=(Report.RMS_LOSS, Report.GRADIENT_DEVIATION))
    numbers, _ = answered(app, node(1, tmp_path), asked, model())
    answer = TrainAnswer.from_metrics(numbers, asked.reports)
    assert answer.reports[Report.GRADIENT_DEVIATION] == 2.5
    expected = np.sqrt(np.square(own_losses(node(1), model()).astype(np.float64)).mean())
    assert answer.reports[Report.RMS_LOSS] == pytest.approx(expected)
    assert [kind for _, kind, _ in seen] == ["train"]
    for found, after in zip(models[0], trained(model(), 1), strict=True):
        np.testing.assert_array_equal(found, after)


@pytest.mark.parametrize(
    ("losses", "came"),
    [(0.5, r"an array of the shape \(\)"), ([], "no losses"), (np.ones((5, 2)), r"an array .* \(5, 2\)")],
)
def test_losses_that_are_not_one_for_each_example_are_refused(tmp_path, losses, came):
    app = register(client_app(losses=lambda context, arrays: losses), [])
    with pytest.raises(ValueError, match=f"one loss for each training example, and not {came}"):
        answered(app, node(1, tmp_path), app_instruction(reports=(Report.RMS_LOSS,)), model())


# Without fedsel's server


def test_without_fedsels_server_the_app_is_flowers(tmp_path):
    """The same replies, the same refusals, the same mods and actions."""
    calls = []

    def mod(message, context, call_next):
        calls.append(message.metadata.message_type)
        return call_next(message, context)

    def built(app):
        register(app, [])

        @app.train("again", mods=[mod])
        def again(message, context):
            return Message(RecordDict({"said": ConfigRecord({"word": "again"})}), reply_to=message)

        return app

    outcomes = []
    for app in (built(ClientApp(mods=[mod])), built(client_app(mods=[mod]))):
        replies = []
        for kind in ("train", "evaluate", "train.again", "query", "query.other", "train.other", "nonsense"):
            try:
                message = Message(RecordDict({"arrays": by_name(model())}), 90, "train")
                message.metadata.__dict__["_message_type"] = kind
                replies.append(app(message, node(0, tmp_path)).content)
            except ValueError as error:
                replies.append(str(error))
        for wrong in ("train", "query"):
            with suppress(ValueError):
                getattr(app, wrong)("no name")(mod)
                replies.append("registered")
        with pytest.raises(ValueError, match="already registered"):
            app.train()(mod)
        outcomes.append((replies, list(calls)))
        calls.clear()
    assert [str(reply) for reply in outcomes[0][0]] == [str(reply) for reply in outcomes[1][0]]
    assert outcomes[0][1] == outcomes[1][1] == ["train", "evaluate", "train.again", "train.again"]


def test_an_action_of_the_users_trains_in_fedsels_rounds_too(tmp_path):
    app = client_app()

    @app.train("personal")
    def personal(message, context):
        return Message(message.content, reply_to=message)

    reply = app(named_question(app_instruction(), model(), kind="train.personal"), node(0, tmp_path))
    [payload] = content_arrays(reply.content, "arrays")
    assert not decode(payload.tobytes(), size=10).update.dense().any()
