"""Report of one finished run on the console: its summary as a table."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsel_app.config import ConfigError
from fedsel_app.records.run_folder import read_rounds
from fedsel_app.records.schema import score_name
from fedsel_app.records.summary import averaged_text
from simulation.engines.run_folders import read_summary


def report_run(folder: Path, console: Console) -> None:
    """Print the summary of the run in `folder`, and what to do next.

    Raises ConfigError if the run is not finished.
    """
    summary = read_summary(folder)
    if summary is None:
        raise ConfigError(f"The run in {folder} is not finished: there is no summary.json.")
    score = score_name(summary)
    table = Table(show_header=False, box=None, pad_edge=False)
    metrics = {
        f"{prefix}{name}": value
        for field, prefix in (("final_metrics", "final_"), ("final_client_metrics", "final_client_"))
        for name, value in summary.pop(field, {}).items()
    }
    for key, value in (summary | metrics).items():
        absent = {"final_loss": "not finite"}.get(key, "not reached" if "_to_target" in key else "")
        if key not in ("versions", "ended") and (value is not None or absent):
            text = absent if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
            if key == f"stable_{score}":
                text += f" ({averaged_text(sum(score in row for row in read_rounds(folder)))})"
            table.add_row(escape(key), escape(text))
    console.print(table)
    console.print(f"Run folder: {folder}\nNext: fedsel report {folder}", markup=False, soft_wrap=True, highlight=False)
