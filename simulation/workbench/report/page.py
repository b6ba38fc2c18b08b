"""Report page (`fedsel report`): one self-contained HTML file, and the same tables as CSV and LaTeX.

The templates are in `templates/`. `parts.html` has macros: a table, a figure and a list of sentences. The script of
`live.html` replaces the page's main part, and stops after the last run or the server's end.
"""

import base64
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader
from rich.console import Console

from fedsel_app.config.data import OF_FILES
from fedsel_app.records.files import write_text
from fedsel_app.records.reading import read_object
from fedsel_app.records.run_folder import DATA
from simulation.workbench.comparison.measures import EvaluatedMetric, Numbers, metric_of
from simulation.workbench.comparison.results import Group, RecordedComparison
from simulation.workbench.report.answer import PLACES, print_table, variants_table, verdict
from simulation.workbench.report.drawing import Plot, plot_cells, plot_metric, write_figures
from simulation.workbench.report.findings import (
    SIGNIFICANT,
    client_table,
    failure_table,
    finding_tables,
    participation_table,
    run_table,
    tuned_kind,
    tuning_section,
)
from simulation.workbench.report.tables import HEAD, NAMES, Table, csv_text, inert, latex_table
from simulation.workbench.terminal import print_lines

DOTS = 144
"""Resolution of the figures in dots per inch."""
ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Section:
    """Section of the report on one group; `name` is its cell of the grid, and `title` the same in headings."""

    name: str
    title: str
    ranking: Table
    verdict: list[str]
    tables: list[Table]
    plot: Plot


@dataclass(frozen=True)
class ReportContent:
    """Report on a comparison or a run, as the page shows it.

    Attributes
    ----------
    settings : kind of the comparison, and its main settings
    tuned : sentences on a tuning, whose table is then the first of `common`; empty for other folders
    cells : picture of all cells of a grid
    common : tables on all runs
    """

    title: str
    settings: str
    notes: Sequence[str]
    tuned: Sequence[str]
    cells: Plot | None
    sections: Sequence[Section]
    common: Sequence[Table]


def write_report(
    folder: Path,
    *,
    sources: Sequence[Path] = (),
    metric: str = "",
    figures: str = "",
    labels: Mapping[str, str] = MappingProxyType({}),
    console: Console | None = None,
) -> Path:
    """Write report.html, rounds.csv, report-TABLE.csv and .tex into `folder`; a .tex for each cell.

    Returns the file of the page. Raises ConfigError if the folder has no run with a finished round, no run measured
    `metric`, or a label is of another method.

    Parameters
    ----------
    sources : folders of runs and comparisons that the report compares; by default what `folder` has
    metric : metric of the rounds in figures, tables and sentences; empty: the score, to which targets always refer
    figures : format in which the figures are also written: svg, pdf or png; empty: none
    labels : method -> the name under which tables, figures and sentences show it
    console : prints the answer; None: the answer is not printed
    """
    source, several = (sources[0], ()) if len(sources) == 1 else (folder, sources)
    comparison = RecordedComparison.read(source, several, labels)
    folder.mkdir(parents=True, exist_ok=True)
    report = _report(comparison, metric_of(comparison.counted, metric))
    if console:
        _print(console, report)
    _write_tables(folder, report)
    rounds = comparison.rounds
    numbers = [name for name in rounds if not rounds[name].map(lambda cell: isinstance(cell, list | dict)).any()]
    write_text(folder / "rounds.csv", rounds[numbers].map(inert).to_csv(index=False))
    if figures:
        cells = [("", report.cells)] if report.cells else []
        write_figures(folder, [*cells, *((section.title, section.plot) for section in report.sections)], figures)
    page = folder / "report.html"
    write_text(page, html("report", **vars(report), answers=_answers(report), png=_png))
    return page


def _answers(report: ReportContent) -> list[str]:
    """The best by the metric and its difference from the next; of the cells of a grid, how many each method leads."""
    best = [(section, section.verdict[-1].partition(" Against the baseline")[0]) for section in report.sections]
    if not report.cells:
        return [f"{section.title}, {text[:1].lower()}{text[1:]}" if section.name else text for section, text in best]
    leads = Counter(section.ranking.rows[0][1] for section, _ in best)
    counts = ", ".join(f"{name} in {cells}" for name, cells in leads.most_common())
    ahead = sum(PLACES[SIGNIFICANT] in row[-1] for section, _ in best for row in section.ranking.rows[1:2]) or "none"
    question = best[0][1].partition(": ")[0]
    return [f"{question}: {counts} of {len(best)} cells; the difference from the next is significant in {ahead}."]


def _print(console: Console, report: ReportContent) -> None:
    """Print the answer of the report: the ranking and the verdict of each section."""
    print_lines(console, [report.title, report.settings, *report.notes])
    for section in report.sections:
        print_table(console, section.title, section.ranking)
        if report.tuned and section is report.sections[0]:
            print_table(console, "", report.common[0])
            print_lines(console, report.tuned)
        print_lines(console, section.verdict)
        for table in section.tables:
            if table.name == "clients":
                print_table(console, section.title, table)


def _report(comparison: RecordedComparison, metric: EvaluatedMetric) -> ReportContent:
    tuned, tuned_table = tuning_section(comparison)
    tables = [tuned_table, run_table(comparison), failure_table(comparison.runs.values())]
    sections = [
        _section(group, (tuned and tuned_kind(group)) or comparison.kind_of(group), metric)
        for group in sorted(comparison.groups, key=lambda group: not (tuned and tuned_kind(group)))
    ]
    return ReportContent(
        title=headline(comparison),
        settings=setting_line(comparison),
        notes=comparison.notes,
        tuned=tuned,
        cells=None if tuned or len(sections) == 1 else plot_cells(comparison.groups, metric),
        sections=sections,
        common=[table for table in tables if table],
    )


def _section(group: Group, kind: str, metric: EvaluatedMetric) -> Section:
    numbers = Numbers(group, metric)
    findings = [replace(table, caption=f"{kind} {table.caption}".lstrip()) for table in finding_tables(group, numbers)]
    tables = [table for table in (*findings, participation_table(group), client_table(group, metric)) if table]
    ranking, sentences = variants_table(group, numbers), verdict(group, numbers)
    return Section(group.name, group.title, ranking, sentences, tables, plot_metric(group, metric))


def _write_tables(folder: Path, report: ReportContent) -> None:
    """Write all tables of a name into one CSV, and each into a LaTeX file. Remove the files of an earlier report."""
    for name in NAMES:
        for ending in ("csv", "tex"):
            (folder / f"report-{name}.{ending}").unlink(missing_ok=True)
        for path in folder.glob(f"report-{name}-*.tex"):
            if path.read_text(encoding="utf-8", errors="replace").startswith(HEAD):
                path.unlink()
    kinds: dict[str, list[tuple[Section | None, Table]]] = {}
    for section in report.sections:
        for table in (section.ranking, *section.tables):
            kinds.setdefault(table.name, []).append((section, table))
    kinds |= {table.name: [(None, table)] for table in report.common}
    for name, tables in kinds.items():
        named = [(cell.name if cell else "", table) for cell, table in tables]
        write_text(folder / f"report-{name}.csv", csv_text(named))
        for cell, table in tables:
            title = cell.title if cell else ""
            file = re.sub(r"[^\w.+-]+", "-", f"report-{name} {title}".strip())
            write_text(folder / f"{file}.tex", latex_table(title, table))


def headline(comparison: RecordedComparison) -> str:
    """Headline of the page: strategies, data set and seeds."""
    runs = comparison.counted
    strategies = list(dict.fromkeys(run.strategy for run in runs))
    seeds = sorted({run.seed for run in runs})
    seed_text = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    data, path = str(runs[0].config["data"]), str(runs[0].config.get("data-path") or "")
    name = Path(path).name if path and data in OF_FILES else data
    return f"{', '.join(strategies)} on {name}, {seed_text}"


def setting_line(comparison: RecordedComparison) -> str:
    """Line on the kind of the comparison and its main settings."""
    [first, *_] = comparison.counted
    config, cell = first.config, ", ".join(f"{key}={value}" for key, value in first.cell.items())
    kinds = dict.fromkeys(comparison.kind_of(group) for group in comparison.groups)
    kind = f"{next(iter(kinds))} " if len(kinds) == 1 and any(kinds) else ""
    no_central_data = (read_object(first.folder / DATA) or {}).get("training_examples") == 0
    either = " or data of their own" if config["links"] == "measured" else ""
    data = "data of their own" if no_central_data else f"partition {config['partition']}{either}"
    return (
        f"{kind}Model {config['model']}, {config['clients']} clients with {data}, "
        f"{config['cohort']} selected a round, {config['rounds']} rounds, links {config['links']}, "
        f"target {config['target']:g}." + (f" These are the settings with {cell}." if cell else "")
    )


def _png(plot: Plot) -> str:
    """PNG of the figure as base64."""
    picture = io.BytesIO()
    plot.figure.savefig(picture, format="png", dpi=DOTS)
    return base64.b64encode(picture.getvalue()).decode()


def html(page: str, **values: Any) -> str:
    """Text of the page `report` or `live`, filled with `values`."""
    return ENVIRONMENT.get_template(f"{page}.html").render(**values)
