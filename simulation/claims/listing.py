"""Listing of claims and rankings for the terminal: source, scale, cost of the runs, and verdict."""

from rich.table import Table

from fedsel_app.config import ConfigError
from simulation.claims.claim import load_claims
from simulation.claims.ledger import advantage_text, decided
from simulation.claims.measured import Measured
from simulation.claims.ranking import load_rankings
from simulation.claims.runs import cost_s, missing_runs
from simulation.claims.study import Study
from simulation.claims.verdict import decide
from simulation.terminal import whole_table


def claims_table(measured: Measured) -> Table:
    """Table of all claims and rankings, a line each."""
    claims, rankings = load_claims(), load_rankings()
    verdicts = decide(claims, measured)
    runs = sum(len(study.seeds) * len(study.sides) for study in (*claims, *rankings))
    caption = f"{len(claims)} claims, {decided(verdicts)} decided; {runs} runs, some of them shared"
    columns = "claim", "source", "scale", "metric", "advantage", "verdict"
    table = whole_table(*columns, numbers=("missing", "core minutes"), caption=caption, fold=False)
    for claim in claims:
        for index, verdict in enumerate(verdicts[claim.name].verdicts):
            lead = [claim.name, f"{claim.paper}, {claim.source}", claim.scale] if index == 0 else ["", "", ""]
            costs = [str(len(missing_runs([claim], measured))), _minutes(claim, measured)] if index == 0 else ["", ""]
            table.add_row(*lead, verdict.pairs.metric.name, advantage_text(verdict), verdict.word, *costs)
    for ranking in rankings:
        costs = [str(len(missing_runs([ranking], measured))), _minutes(ranking, measured)]
        table.add_row(ranking.name, ranking.title, "ranking", "", "", "", *costs)
    return table


def _minutes(study: Study, measured: Measured) -> str:
    try:
        return f"{cost_s(study, measured) / 60:,.1f}"
    except ConfigError:
        return "unknown"
