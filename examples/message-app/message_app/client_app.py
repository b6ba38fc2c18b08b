"""The client app: training and evaluation of the model in a message."""

import torch
from fedsel_app import client_app
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from message_app.task import Net, load_data
from message_app.task import test as test_fn
from message_app.task import train as train_fn

app = client_app()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on this client's data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    torch.manual_seed(context.node_config["partition-id"])
    trainloader, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = train_fn(model, trainloader, context.run_config["local-epochs"], msg.content["config"]["lr"], "cpu")
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(trainloader.dataset)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Test the model on this client's validation data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, valloader = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss, accuracy = test_fn(model, valloader, "cpu")
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(valloader.dataset)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
