"""Settings of a run: its federation, its evaluation and its records."""

from dataclasses import dataclass

from fedsel_app.config.settings import ConfigError, Settings, require, setting

TRACKERS = ("tensorboard", "mlflow", "wandb")


@dataclass(frozen=True)
class RunConfig(Settings, scope="federation"):
    """Federation: method, model, rounds, clients and seed."""

    strategy: str = setting(
        "hetero-select",
        "selection method, or package.module:Class",
        first=True,
        private=("random", "full"),
        code=True,
        own=True,
    )
    model: str = setting(
        "logistic", "model architecture, or package.module:function", first=True, scope="task", code=True, private=True
    )
    initial_model: str = setting(
        "",
        "file with the weights at the start, by the names of the model's state dict: .safetensors, .npz, .pt; empty:"
        " drawn from `seed`",
        first=True,
        scope="task",
    )
    rounds: int = setting(20, "number of communication rounds, T", low=1, first=True, private=True)
    clients: int = setting(
        20, "number of clients in the federation, K", low=1, high=10_000_000, first=True, private=True
    )
    cohort: int = setting(
        5, "number of clients selected in each round, M", low=1, first=True, private=True, scope="server"
    )
    seed: int = setting(
        42, "seed of every random draw; the same seed gives the same bits", low=0, first=True, private=True, own=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort > self.clients:
            raise ConfigError(f"The 'cohort' parameter must be at most 'clients' ({self.clients}). Got {self.cohort}.")


@dataclass(frozen=True)
class EvaluationConfig(Settings, scope="federation"):
    """Evaluation: when and on what the global model is evaluated, its target, and the loss probes of clients."""

    eval_every: int = setting(
        1,
        "number of rounds between two evaluations of the global model on the test set",
        low=1,
        first=True,
        private=True,
    )
    client_eval: bool = setting(
        False,
        "also evaluates the global model on the test part of each client (needs holdout-fraction above 0)",
        private=True,
    )
    target: float = setting(
        0.9,
        "test accuracy to reach (multi-label data: G-mean; regression: R^2). The run reports the round, the seconds"
        " and the bytes at which it is reached",
        above=0.0,
        high=1.0,
        first=True,
        private=True,
    )
    stop_at_target: bool = setting(False, "ends the run in the round that reaches the target", private=True)
    probe_batches: int = setting(
        8, "number of mini-batches in a loss probe, for methods that probe", low=1, private=True
    )
    probe_bits: int = setting(
        32,
        "bits of each parameter of the model that is sent for a loss probe: 32, 16, 8 or 4. Fewer than 32 are rounded"
        " as with value-bits, so the loss is that of the rounded model",
        private=True,
    )
    probe_batch: str = setting(
        "plain",
        "how a loss probe measures",
        choices={
            "plain": "the examples are unchanged, and each example has the same weight",
            "training": "the examples are augmented, and each mini-batch has the same weight",
        },
        variants=("plain", "training"),
        private=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.probe_bits in (32, 16, 8, 4), "probe-bits", "32, 16, 8 or 4", self.probe_bits)


@dataclass(frozen=True)
class RecordConfig(Settings, scope="place"):
    """Records: the run folder, checkpoints, trackers and the states of clients."""

    checkpoint_every: int = setting(
        10,
        "number of rounds between two checkpoints, from which a run can be resumed; 0 writes none",
        low=0,
        private=True,
    )
    changed_data: bool = setting(
        False,
        "resumes a run although its data have changed since it began; its earlier scores are then those of other data",
    )
    resume: bool = setting(False, "resumes the run in `out` from its last checkpoint", own=True, private=True)
    track: str = setting(
        "", f"trackers that receive every round, separated by commas: {', '.join(TRACKERS)}", private=True
    )
    out: str = setting(
        "", "run folder; empty: a new folder below runs/ in the working directory", first=True, own=True, private=True
    )
    state_dir: str = setting(
        "",
        "folder for the states of a deployed client, set in its --node-config; empty: ~/.local/state/fedsel."
        " A simulation keeps the states in `out`",
        scope="engine",
        owner="alone",
        own=True,
        private=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        named = f"some of {', '.join(TRACKERS)}, separated by commas"
        require(set(self.trackers) <= set(TRACKERS), "track", named, self.track)

    @property
    def trackers(self) -> list[str]:
        """Names in `track`, each once."""
        return list(dict.fromkeys(name.strip() for name in self.track.split(",") if name.strip()))
