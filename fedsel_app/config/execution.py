"""Settings of execution: engine, workers, threads, devices and precision."""

from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, setting


@dataclass(frozen=True)
class ExecutionConfig(Settings, scope="task", private=True):
    """Execution: engine, workers, threads, devices and precision."""

    engine: str = setting(
        "auto",
        "where a simulation runs",
        choices={
            "auto": "the one of the two that is expected to finish first",
            "inline": "in this process",
            "ray": "in the workers of Ray, side by side",
        },
        first=True,
        scope="engine",
    )
    workers: int = setting(
        0, "number of Ray actors that train side by side; 0 takes one per core", low=0, first=True, scope="engine"
    )
    threads: int = setting(1, "number of torch threads of each client", low=1, owner="may")
    eval_threads: int = setting(
        2, "number of torch threads of the server's evaluation, while clients are idle; small models take one", low=1
    )
    client_gpus: float = setting(0.0, "share of a GPU for each Ray actor", low=0.0, scope="engine")
    device: str = setting(
        "auto",
        "device on which clients train",
        choices={"auto": "cuda, else mps, else cpu", "cpu": "", "cuda": "", "mps": ""},
        first=True,
        owner="may",
    )
    precision: str = setting(
        "fp32",
        "number format of the forward and backward passes; weights, losses and updates always are fp32. The two formats"
        " give different bits",
        choices=("fp32", "bf16"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine == "inline" and self.workers:
            raise ConfigError("The 'engine' inline has no workers: leave 'workers' at 0, or set 'engine' to ray.")
