"""Settings of the server: aggregation, optimizer, robust rules, privacy and BatchNorm calibration."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class ServerConfig(Settings):
    """Aggregation and the server's step."""

    weighting: str = setting(
        "method",
        "weights of the updates: the method's own choice, by score, by examples, or equal",
        choices=("method", "score", "examples", "uniform"),
    )
    server_optimizer: str = setting(
        "momentum",
        "w += lr (momentum M + update), w += lr update, or w += lr M / (sqrt(V) + tau)",
        choices=("momentum", "mean", "fedadam", "fedyogi", "fedadagrad"),
    )
    server_momentum: float = setting(0.5, "decay beta_s of the server's momentum", low=0.0, below=1.0)
    server_lr: float = setting(1.0, "server learning rate", above=0.0)
    server_beta1: float = setting(0.9, "decay of M in fedadam, fedyogi and fedadagrad", low=0.0, below=1.0)
    server_beta2: float = setting(0.99, "decay of V in fedadam and fedyogi", low=0.0, below=1.0)
    server_tau: float = setting(1e-3, "tau of those three: their V starts at tau^2", above=0.0)
    aggregation: str = setting(
        "mean",
        "of the updates: the weighted mean, or what a few hostile clients cannot steer, each client counting alike",
        choices=("mean", "median", "trimmed-mean", "krum", "multi-krum"),
    )
    trim_share: float = setting(0.1, "share of its values that trimmed-mean cuts at each end", low=0.0, below=0.5)
    krum_malicious: int = setting(1, "hostile clients a round that krum and multi-krum withstand, f", low=0)
    max_update_norm: float = setting(
        1e6, "largest norm of an update, in multiples of the round's median (0: any; without effect under dp)", low=0.0
    )
    dp_clip_norm: float = setting(0.0, "norm to which updates are clipped for differential privacy (0: off)", low=0.0)
    dp_noise_multiplier: float = setting(1.0, "standard deviation of its noise, in clip norms of one client", above=0.0)
    dp_delta: float = setting(1e-5, "delta at which its epsilon is reported", above=0.0, below=1.0)
    calibration_clients: int = setting(0, "clients that recompute BatchNorm statistics (0: all selected)", low=0)
    calibration_batches: int = setting(20, "mini-batches each of them uses", low=1)
