"""Settings of the server optimizer."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class ServerOptimizerConfig(Settings):
    """Server optimizer: the step of the global model along the aggregated update."""

    server_optimizer: str = setting(
        "momentum",
        "w += lr (momentum M + update), w += lr update, or w += lr M / (sqrt(V) + tau)",
        choices={
            "momentum": "w += lr (momentum M + update)",
            "mean": "w += lr update",
            "fedadam": "w += lr M / (sqrt(V) + tau), V a moving average of squares",
            "fedyogi": "as fedadam, V moving by the sign of the difference",
            "fedadagrad": "as fedadam, V the sum of squares",
        },
    )
    server_momentum: float = setting(0.5, "decay beta_s of the server's momentum", low=0.0, below=1.0)
    server_lr: float = setting(1.0, "server learning rate", above=0.0)
    server_beta1: float = setting(0.9, "decay of M in fedadam, fedyogi and fedadagrad", low=0.0, below=1.0)
    server_beta2: float = setting(0.99, "decay of V in fedadam and fedyogi", low=0.0, below=1.0)
    server_tau: float = setting(1e-3, "tau of those three: their V starts at tau^2", above=0.0)
