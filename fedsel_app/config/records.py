"""Settings of the records: run folder, checkpoints and states of the clients."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, require, setting

TRACKERS = ("tensorboard", "mlflow", "wandb")


@dataclass(frozen=True)
class RecordConfig(Settings):
    """Records: run folder, checkpoints and states of the clients."""

    checkpoint_every: int = setting(10, "rounds between checkpoints, from which a run can go on (0: none)", low=0)
    resume: bool = setting(False, "go on with the run in `out` from its last checkpoint")
    track: str = setting("", "trackers that hear of every round, with commas between them: tensorboard, mlflow, wandb")
    out: str = setting("", "run folder (empty: runs/ in the working directory)")
    state_dir: str = setting(
        "",
        "folder of a deployed client's residuals, in its --node-config alone (empty: ~/.local/state/fedsel); "
        "a simulation keeps them in `out`",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        named = f"some of {', '.join(TRACKERS)} with commas between them"
        require(set(self.trackers) <= set(TRACKERS), "track", named, self.track)

    @property
    def trackers(self) -> list[str]:
        """Names in `track`, each once."""
        return list(dict.fromkeys(name.strip() for name in self.track.split(",") if name.strip()))
