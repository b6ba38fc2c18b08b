"""Report page (`fedsel report`): one self-contained HTML file, and the same tables as CSV and Markdown."""

import base64
import io
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment
from PIL import Image

from fedsel_app.records.files import write_text
from simulation.comparison.outcomes import Numbers
from simulation.comparison.results import Comparison, Group, read_comparison
from simulation.report.audit import (
    client_table,
    coverages,
    failure_table,
    participation_table,
    pipeline_table,
    run_table,
)
from simulation.report.figures import Plot, plots
from simulation.report.findings import finding_tables
from simulation.report.page_template import TEMPLATE
from simulation.report.tables import NAMES, Table, csv_text, markdown_text
from simulation.report.verdict import verdict

PAGE_BYTES = 3_000_000
RESOLUTIONS = (144, 100, 60)
"""Dots an inch of the figures: the first at which the page stays below PAGE_BYTES, else the last."""
ROWS_SHOWN = 50


@dataclass(frozen=True)
class Section:
    """Section of the page on one group."""

    name: str
    verdict: list[str]
    notes: list[str]
    tables: list[Table]
    plots: list[Plot]


def write_report(folder: Path, baseline: str | None = None) -> Path:
    """Write report.html, report.md and a report-TABLE.csv for each table into `folder`; the page's path.

    Raises
    ------
    ConfigError
        If the folder holds no run with a finished round, or no variant is called `baseline`.
    """
    comparison = read_comparison(folder, baseline)
    sections = [_section(group, comparison.kind) for group in comparison.groups]
    optional = pipeline_table(comparison), failure_table(comparison.runs)
    common = [run_table(comparison), *(table for table in optional if table)]
    for name in NAMES:
        (folder / f"report-{name}.csv").unlink(missing_ok=True)
    kinds: dict[str, list[tuple[str, Table]]] = {}
    for label, table in [(section.name, table) for section in sections for table in section.tables]:
        kinds.setdefault(table.name, []).append((label, table))
    for table in common:
        kinds[table.name] = [("", table)]
    for name, tables in kinds.items():
        write_text(folder / f"report-{name}.csv", csv_text(tables))
    write_text(folder / "report.md", _markdown(comparison, sections, common))
    page = folder / "report.html"
    for dots in RESOLUTIONS:
        text = _html(comparison, sections, common, dots)
        if len(text.encode()) < PAGE_BYTES:
            break
    write_text(page, text)
    return page


def headline(comparison: Comparison) -> str:
    """Headline of the page: strategies, data set and seeds."""
    runs = [run for group in comparison.groups for run in group.all_runs]
    strategies = list(dict.fromkeys(run.strategy for run in runs))
    seeds = sorted({run.seed for run in runs})
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return f"{', '.join(strategies)} on {runs[0].config['data']}, {named}"


def setting_line(comparison: Comparison) -> str:
    """Kind of the comparison, and its main settings: model, clients, partition, cohort, rounds, links and target."""
    config = comparison.groups[0].all_runs[0].config
    given = ", ".join(f"{key}={value}" for key, value in comparison.settings.items())
    kind = f"{comparison.kind} " if comparison.kind else ""
    return (
        f"{kind}Model {config['model']}, {config['clients']} clients with partition {config['partition']}, "
        f"{config['cohort']} selected a round, {config['rounds']} rounds, links {config['links']}, "
        f"target {config['target']:g}." + (f" Set for all runs: {given}." if given else "")
    )


def _section(group: Group, kind: str) -> Section:
    numbers = Numbers(group)
    covered, why_not = coverages(group)
    clients = client_table(group)
    notes = [why_not] if why_not else []
    if clients is None:
        notes.append("The accuracy by client is not shown: the runs did not measure it ('client-eval' was off).")
    findings = [replace(table, caption=f"{kind} {table.caption}".lstrip()) for table in finding_tables(group, numbers)]
    tables = [*findings, participation_table(group, covered), *([clients] if clients else [])]
    return Section(group.name, verdict(group, numbers), notes, tables, plots(group, numbers, covered))


def _png(plot: Plot, dots: int) -> str:
    """The figure as base64, with a palette: a third of the size."""
    drawn, output = io.BytesIO(), io.BytesIO()
    plot.figure.savefig(drawn, format="png", dpi=dots)
    image = Image.open(drawn).convert("RGB").quantize(128, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    image.save(output, "png", optimize=True)
    return base64.b64encode(output.getvalue()).decode()


def _html(comparison: Comparison, sections: list[Section], common: list[Table], dots: int) -> str:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATE).render(
        title=headline(comparison),
        settings=setting_line(comparison),
        notes=comparison.notes,
        sections=sections,
        common=common,
        rows_shown=ROWS_SHOWN,
        png=lambda plot: _png(plot, dots),
    )


def _markdown(comparison: Comparison, sections: list[Section], common: list[Table]) -> str:
    parts = [f"# {markdown_text(headline(comparison))}", markdown_text(setting_line(comparison))]
    parts += [f"Note: {markdown_text(note)}" for note in comparison.notes]
    for section in sections:
        parts += [f"## {markdown_text(section.name)}"] if section.name else []
        parts += ["\n".join(f"- {markdown_text(sentence)}" for sentence in section.verdict)]
        for table in section.tables:
            parts += [f"### {table.title}", table.markdown().rstrip()]
        parts += map(markdown_text, section.notes)
    for table in common:
        parts += [f"### {table.title}", table.markdown().rstrip()]
    return "\n\n".join(parts) + "\n"
