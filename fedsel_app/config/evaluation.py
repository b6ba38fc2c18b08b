"""Settings of evaluation: its interval, its data and the target."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class EvaluationConfig(Settings):
    """Evaluation of the global model: its interval, its data and the target; and the loss probe."""

    eval_every: int = setting(1, "rounds between evaluations of the global model on the test set", low=1)
    client_eval: bool = setting(False, "evaluate the global model on every client's own test part as well")
    target: float = setting(
        0.9,
        "test accuracy (multi-label: G-mean; regression: R^2) whose round, seconds and bytes are reported",
        above=0.0,
        high=1.0,
    )
    stop_at_target: bool = setting(False, "end the run in the round that reaches the target")
    probe_batches: int = setting(8, "mini-batches of a loss probe, where a method needs one", low=1)
    probe_batch: str = setting(
        "plain",
        "mini-batches of a loss probe: as they are, each example alike; or augmented, each mini-batch alike"
        " (HeteRo-Select's code)",
        choices=("plain", "training"),
    )
