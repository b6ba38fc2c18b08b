"""The server app: the strategy, the initial model and the central test."""

import torch
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg

from flower_app.task import Net, get_weights, load_test_data, set_weights, test


def evaluate(server_round, arrays, config):
    """Test the global model on the server's data."""
    net = Net()
    set_weights(net, arrays)
    loss, accuracy = test(net, load_test_data())
    return loss, {"accuracy": accuracy}


def server_fn(context: Context):
    """Build the server of this run."""
    run = context.run_config
    rounds, clients = run["num-server-rounds"], run["num-clients"]
    torch.manual_seed(1)
    parameters = ndarrays_to_parameters(get_weights(Net()))
    options = {"fraction_fit": 0.5, "min_available_clients": clients}
    strategy = FedAvg(initial_parameters=parameters, evaluate_fn=evaluate, **options)
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))


app = ServerApp(server_fn=server_fn)
