"""Settings of the run as a whole."""

from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, setting


@dataclass(frozen=True)
class RunConfig(Settings):
    """The run as a whole."""

    strategy: str = setting("hetero-select", "selection method, or package.module:Class")
    model: str = setting("logistic", "architecture, or package.module:function")
    rounds: int = setting(20, "communication rounds T", low=1)
    clients: int = setting(20, "clients K", low=1)
    cohort: int = setting(5, "clients selected a round, M", low=1)
    seed: int = setting(42, "seed of everything that is drawn", low=0)
    eval_every: int = setting(1, "rounds between evaluations of the global model on the test set", low=1)
    client_eval: bool = setting(False, "evaluate the global model on every client's own test part as well")
    target: float = setting(
        0.9,
        "test accuracy (multi-label: G-mean; regression: R^2) whose round, seconds and bytes are reported",
        above=0.0,
        high=1.0,
    )
    probe_batches: int = setting(8, "mini-batches of a loss probe, where a method needs one", low=1)
    workers: int = setting(0, "Ray actors that train side by side (0: one for each core)", low=0)
    ray_address: str = setting(
        "", "Ray cluster that simulates, HOST:PORT or auto, one actor for each of its CPUs (empty: Ray on this machine)"
    )
    threads: int = setting(1, "torch threads of each client", low=1)
    eval_threads: int = setting(2, "torch threads of the server's evaluation; clients are idle then", low=1)
    client_gpus: float = setting(0.0, "share of a GPU each Ray actor takes", low=0.0)
    device: str = setting("auto", "where clients train", choices=("auto", "cpu", "cuda", "mps"))
    connect_timeout_s: int = setting(120, "seconds to wait for all clients to connect", low=1)
    round_deadline_s: float = setting(
        0.0, "seconds of a round's training after which clients have failed, on the clock of `links` (0: none)", low=0.0
    )
    over_selection: float = setting(
        0.0, "share of the cohort that trains beside it; the first of all that come back count", low=0.0
    )
    min_returned: int = setting(1, "usable replies below which a round changes nothing", low=1)
    client_failure_rate: float = setting(
        0.0, "probability that a selected client's reply is lost, in simulations of failures", low=0.0, high=1.0
    )
    share_label_counts: bool = setting(True, "clients tell their examples of each class, where a method needs them")
    stop_at_target: bool = setting(False, "end the run in the round that reaches the target")
    checkpoint_every: int = setting(10, "rounds between checkpoints, from which a run can go on (0: none)", low=0)
    resume: bool = setting(False, "go on with the run in `out` from its last checkpoint")
    tensorboard: bool = setting(False, "write TensorBoard's event files into the run folder")
    out: str = setting("", "run folder (empty: runs/ in the working directory)")
    state_dir: str = setting(
        "", "folder of a deployed client's residuals (empty: the temporary directory); a simulation keeps them in `out`"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort > self.clients:
            raise ConfigError(f"The 'cohort' parameter must be at most 'clients' ({self.clients}). Got {self.cohort}.")
        if self.ray_address and self.workers:
            raise ConfigError(
                "With 'ray-address' the cluster's CPUs say how many 'workers' there are; leave that at 0. "
                f"Got {self.workers}."
            )
        if self.min_returned > self.clients:
            raise ConfigError(
                f"The 'min-returned' parameter must be at most 'clients' ({self.clients}). Got {self.min_returned}."
            )
