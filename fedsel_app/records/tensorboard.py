"""TensorBoard event files of a run: every number of a round, against the rounds."""

from pathlib import Path

from fedsel_app.config import ConfigError
from fedsel_app.records.schema import Row


class EventFiles:
    """Event files in `folder`, written round by round.

    Parameters
    ----------
    folder : made if absent
    completed : rounds that earlier processes wrote; what they wrote of later ones is dropped

    Raises
    ------
    ConfigError
        If the package tensorboard is not installed.
    """

    def __init__(self, folder: Path, completed: int) -> None:
        refuse_absent()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=completed + 1)

    def round(self, row: Row) -> None:
        """Write one finished round."""
        for name, value in (row | row.get("metrics", {})).items():
            if isinstance(value, int | float) and name != "round":
                self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()


def refuse_absent() -> None:
    """Raise ConfigError if the package tensorboard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "The 'tensorboard' parameter needs the package tensorboard; install it with "
            "`pip install 'fedsel[tensorboard]'`, or leave the setting out."
        ) from error
