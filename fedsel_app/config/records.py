"""Settings of the records: run folder, checkpoints and states of the clients."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class RecordConfig(Settings):
    """Records: run folder, checkpoints and states of the clients."""

    checkpoint_every: int = setting(10, "rounds between checkpoints, from which a run can go on (0: none)", low=0)
    resume: bool = setting(False, "go on with the run in `out` from its last checkpoint")
    tensorboard: bool = setting(False, "write TensorBoard's event files into the run folder")
    out: str = setting("", "run folder (empty: runs/ in the working directory)")
    state_dir: str = setting(
        "",
        "folder of a deployed client's residuals, in its --node-config alone (empty: ~/.local/state/fedsel); "
        "a simulation keeps them in `out`",
    )
