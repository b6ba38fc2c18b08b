"""Report of one finished run on the console: its summary as a table, and a picture of its score."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.data import OF_FILES
from fedsel_app.config.plugins import described
from fedsel_app.config.run import score_title
from fedsel_app.records.files import whole_file
from fedsel_app.records.run_folder import read_config, read_rounds
from fedsel_app.records.schema import ACCURACY, Row, schedule_round, score_name
from fedsel_app.records.summary import averaged_text
from simulation.engines.run_folders import read_summary
from simulation.workbench.report.drawing import Style, label_x

AXES = (
    ("round", 1.0, "round"),
    ("time_s", 1.0, "seconds"),
    ("total_uplink_bytes", 1e6, "MB sent to the server"),
)


def draw_run(rows: Sequence[Row], score: str, target: float, title: str, path: Path) -> Path:
    """Draw the score against rounds, seconds and MB sent into one PNG file at `path`, and return `path`."""
    evaluated = [row for row in rows if score in row]
    figure, panels = Style().panels(1, len(AXES), 3.6, sharey=True)
    for panel, (key, unit, label) in zip(panels, AXES, strict=True):
        x = [schedule_round(row) if key == "round" else row[key] / unit for row in evaluated]
        panel.plot(x, [row[score] for row in evaluated], color="#0072B2")
        panel.axhline(target, color="#D55E00", linestyle="--", linewidth=1, label=f"target {target:g}")
        label_x(panel, label, whole=key == "round")
    panels[0].set_ylabel(f"test {score_title(score)}")
    panels[0].legend(loc="lower right")
    figure.suptitle(title)
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=120)
    return path


def report_run(folder: Path, console: Console) -> None:
    """Print the summary of the run in `folder`, draw its picture there, and print the paths of both.

    If the picture cannot be drawn, the reason is printed instead.

    Raises ConfigError if the run is not finished.
    """
    summary, config = read_summary(folder), read_config(folder, ["data"])
    if summary is None:
        raise ConfigError(f"The run in {folder} is not finished: there is no summary.json.")
    title = f"{summary['strategy']} on {data_name(config)}, seed {summary['seed']}"
    rows, score = read_rounds(folder), score_name(summary)
    path = folder / ("accuracy.png" if score == ACCURACY else "score.png")
    try:
        picture = str(draw_run(rows, score, summary[f"target_{score}"], title, path))
    except Exception as error:  # noqa: BLE001 - the run is finished, whatever happens to its picture
        picture = f"not drawn ({described(error)}). The records are complete."
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
                text += f" ({averaged_text(sum(score in row for row in rows))})"
            table.add_row(escape(key), escape(text))
    console.print(table)
    console.print(f"Run folder: {folder}\nPicture:    {picture}", markup=False, soft_wrap=True, highlight=False)


def data_name(values: Mapping[str, Value]) -> str:
    """Name of the data set of the settings `values`; for a user's own files, the last part of their path."""
    data, path = str(values["data"]), str(values.get("data-path") or "")
    return Path(path).name if path and data in OF_FILES else data
