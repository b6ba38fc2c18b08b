"""Five small Flower apps with Flower's FedAvg, in the form of Flower's examples; `test_apps` converts them.

Each function is an app: it returns the client app, the server's strategy and the arrays of the initial model.
"""

import warnings

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

FEATURES, CLASSES, LR = 4, 3, 0.1


def data(context):
    """20, 30, 40 ... examples, with another distribution at every client."""
    client = context.node_config["partition-id"]
    rng = np.random.default_rng(client)
    x = rng.normal(client / 2, 1.0, (20 + 10 * client, FEATURES)).astype(np.float32)
    return x, np.append(np.arange(CLASSES), x[CLASSES:, :CLASSES].argmax(axis=1))


def counts(context):
    """Label counts for methods that ask for them."""
    return np.bincount(data(context)[1], minlength=CLASSES)


def travelling(net):
    """LoRA's adapters; without any, the whole model."""
    arrays = net.state_dict()
    return {name: array for name, array in arrays.items() if "lora" in name} or arrays


def reply(msg, arrays=None, **metrics):
    """The reply of a training with arrays, or of an evaluation, and its metrics."""
    renamed = {name.replace("num_", "num-"): value for name, value in metrics.items()}
    content = RecordDict({"metrics": MetricRecord(renamed)})
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content=content, reply_to=msg)


def register_torch(app, model, loss_of):
    """Register a training of two steps of SGD and an evaluation with PyTorch."""

    def loaded(msg, context):
        net = model()
        net.load_state_dict(msg.content["arrays"].to_torch_state_dict(), strict=False)
        x, y = map(torch.tensor, data(context))
        return net, x, y

    @app.train()
    def train(msg, context):
        net, x, y = loaded(msg, context)
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        for _ in range(2):
            optimizer.zero_grad()
            loss = loss_of(net.train(), x, y)
            loss.backward()
            optimizer.step()
        return reply(msg, ArrayRecord(travelling(net)), train_loss=loss.item(), num_examples=len(y))

    @app.evaluate()
    def evaluate(msg, context):
        net, x, y = loaded(msg, context)
        with torch.no_grad():
            return reply(msg, eval_loss=loss_of(net.eval(), x, y).item(), num_examples=len(y))

    torch.manual_seed(1)
    return ArrayRecord(travelling(model()))


def numpy():
    app = ClientApp()

    @app.train()
    def train(msg, context):
        step = 1.0 + context.node_config["partition-id"]
        arrays = [array + step for array in msg.content["arrays"].to_numpy_ndarrays()]
        return reply(msg, ArrayRecord(arrays), random_metric=0.5, num_examples=1)

    @app.evaluate()
    def evaluate(msg, context):
        return reply(msg, random_metric=0.5, num_examples=1)

    strategy = FedAvg()
    return app, strategy, ArrayRecord([np.ones((2, 2)), np.zeros(3)])


def scikit_learn():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    app = ClientApp()

    def loaded(msg, context):
        model = LogisticRegression(warm_start=True, max_iter=1)
        model.classes_ = np.arange(CLASSES)
        model.coef_, model.intercept_ = msg.content["arrays"].to_numpy_ndarrays()
        return model, *data(context)

    @app.train()
    def train(msg, context):
        model, x, y = loaded(msg, context)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(x, y)
        loss = log_loss(y, model.predict_proba(x))
        return reply(msg, ArrayRecord([model.coef_, model.intercept_]), train_logloss=loss, num_examples=len(y))

    @app.evaluate()
    def evaluate(msg, context):
        model, x, y = loaded(msg, context)
        return reply(msg, test_logloss=log_loss(y, model.predict_proba(x)), num_examples=len(y))

    strategy = FedAvg()
    return app, strategy, ArrayRecord([np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES)])


def pytorch():
    from torch import nn

    def model():
        return nn.Sequential(nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, CLASSES))

    app = ClientApp()
    arrays = register_torch(app, model, lambda net, x, y: nn.functional.cross_entropy(net(x), y))
    strategy = FedAvg(fraction_train=1.0, min_train_nodes=4)
    return app, strategy, arrays


def hugging_face():
    from torch import nn

    class Model(nn.Module):
        """A dict of inputs in, a dict with the loss out, and output weights tied to the embedding's."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(CLASSES, FEATURES)
            self.head = nn.Linear(FEATURES, CLASSES)
            self.head.weight = self.embedding.weight

        def forward(self, input_ids, attention_mask, labels):
            mask = attention_mask[..., None]
            hidden = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
            return {"loss": nn.functional.cross_entropy(self.head(hidden), labels)}

    def loss_of(net, x, y):
        return net(input_ids=(x > 0).long() + (x > 1), attention_mask=torch.ones(x.shape), labels=y)["loss"]

    app = ClientApp()
    arrays = register_torch(app, Model, loss_of)
    strategy = FedAvg(fraction_evaluate=0.0)
    return app, strategy, arrays


def lora():
    from torch import nn

    class Adapted(nn.Module):
        """A base that all clients have, and adapters of rank two."""

        def __init__(self):
            super().__init__()
            self.base = nn.Linear(FEATURES, CLASSES).requires_grad_(False)
            nn.init.eye_(self.base.weight)
            self.lora_a = nn.Parameter(torch.ones(2, FEATURES).tril())
            self.lora_b = nn.Parameter(torch.zeros(CLASSES, 2))

        def forward(self, x):
            return x @ (self.base.weight + self.lora_b @ self.lora_a).T

    app = ClientApp()
    arrays = register_torch(app, Adapted, lambda net, x, y: nn.functional.cross_entropy(net(x), y))
    strategy = FedAvg(min_available_nodes=4)
    return app, strategy, arrays


APPS = (numpy, scikit_learn, pytorch, hugging_face, lora)
