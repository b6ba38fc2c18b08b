"""TensorBoard event files of a run: every number of a round, against the rounds."""

from fedsel_app.records.schema import Row
from fedsel_app.records.trackers import TrackedRun, numbers


class EventFiles:
    """Event files in the folder `tensorboard` of the run folder, written round by round.

    What earlier processes wrote of rounds that a resumed run does again is dropped.
    """

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.run_id = "tensorboard"
        self._writer = SummaryWriter(str(run.folder / self.run_id), purge_step=len(run.rows) + 1)
        if run.run_id is None:
            for row in run.rows:
                self.on_round(row)

    def on_round(self, row: Row) -> None:
        """Write one finished round."""
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()

    def on_end(self, summary: Row | None) -> None:
        """Close the files."""
        self._writer.close()
