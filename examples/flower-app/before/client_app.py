"""The client app: Flower's NumPyClient around the model and its data."""

from flwr.client import ClientApp, NumPyClient
from flwr.common import Context

from flower_app.task import Net, get_weights, load_data, set_weights, test, train


class FlowerClient(NumPyClient):
    """One client, with its own part of the data."""

    def __init__(self, net, trainloader, valloader, local_epochs, lr):
        self.net, self.trainloader, self.valloader = net, trainloader, valloader
        self.local_epochs, self.lr = local_epochs, lr

    def fit(self, parameters, config):
        """Train the model that came and send it back."""
        set_weights(self.net, parameters)
        loss = train(self.net, self.trainloader, self.local_epochs, self.lr)
        return get_weights(self.net), len(self.trainloader.dataset), {"train_loss": loss}

    def evaluate(self, parameters, config):
        """Test the model that came on this client's validation data."""
        set_weights(self.net, parameters)
        loss, accuracy = test(self.net, self.valloader)
        return loss, len(self.valloader.dataset), {"accuracy": accuracy}


def client_fn(context: Context):
    """Build the client of this node."""
    node, run = context.node_config, context.run_config
    trainloader, valloader = load_data(node["partition-id"], node["num-partitions"])
    return FlowerClient(Net(), trainloader, valloader, run["local-epochs"], run["lr"]).to_client()


app = ClientApp(client_fn)
