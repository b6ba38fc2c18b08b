"""The client app: training and evaluation of the adapters in a message."""

from functools import cache

from fedsel_app import client_app
from flwr.app import Context, Message, MetricRecord, RecordDict

from lora_app.models import get_arrays, get_model, set_arrays
from lora_app.task import load_data
from lora_app.task import test as test_fn
from lora_app.task import train as train_fn

app = client_app()


@cache
def loaded_model(name, lora_rank):
    """The model, loaded once for all messages to this process; each message replaces what is trained."""
    return get_model(name, lora_rank)


def received(msg: Message, context: Context):
    """The model with the arrays of the message, and the client's sequences."""
    run = context.run_config
    model = loaded_model(run["model"], run["lora-rank"])
    set_arrays(model, msg.content["arrays"])
    return model, load_data(context.node_config["partition-id"], run["model"], run["sequence-length"])


@app.train()
def train(msg: Message, context: Context):
    """Train the adapters on the lines of this client's role."""
    model, (sequences, _) = received(msg, context)
    run, config = context.run_config, msg.content["config"]
    seed = 1000 * config["server-round"] + context.node_config["partition-id"]
    loss = train_fn(model, sequences, run["local-steps"], run["batch-size"], config["lr"], seed)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(sequences)})
    return Message(content=RecordDict({"arrays": get_arrays(model), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Test the adapters on the last lines of this client's role."""
    model, (_, sequences) = received(msg, context)
    loss, accuracy = test_fn(model, sequences)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(sequences)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
