"""Listing of claims and rankings for the terminal: verdict, paper, scale, and cost of the runs."""

from rich.table import Table

from fedsel_app.config import ConfigError
from simulation.claims.claim import Claim
from simulation.claims.ledger import advantage_text, decided
from simulation.claims.measured import Measured
from simulation.claims.ranking import Ranking
from simulation.claims.runs import cost_s, missing_runs
from simulation.claims.study import Study
from simulation.claims.verdict import decide
from simulation.terminal import whole_table


def claims_table(measured: Measured) -> Table:
    """Table of all claims and rankings, a line each."""
    claims, rankings = Claim.load(), Ranking.load()
    verdicts = decide(claims, measured)
    standing = [claim for claim in claims if not claim.superseded]
    runs = sum(len(study.seeds) * len(study.sides) for study in (*claims, *rankings))
    caption = (
        f"{len(standing)} claims, {decided({claim.name: verdicts[claim.name] for claim in standing})} decided, and "
        f"{len(claims) - len(standing)} superseded; {runs} runs, some of them shared"
    )
    columns = "claim", "verdict", "metric", "advantage", "paper", "scale"
    table = whole_table(*columns, numbers=("missing", "core minutes"), caption=caption, fold=False)
    for claim in claims:
        for index, verdict in enumerate(verdicts[claim.name].verdicts):
            costs = str(len(missing_runs([claim], measured))), _minutes(claim, measured)
            word = "superseded" if claim.superseded else verdict.word
            shown = word, verdict.pairs.metric.name, advantage_text(verdict)
            of_claim = (claim.paper, claim.scale, *costs) if index == 0 else ("",) * 4
            table.add_row(claim.name if index == 0 else "", *shown, *of_claim)
    for ranking in rankings:
        costs = str(len(missing_runs([ranking], measured))), _minutes(ranking, measured)
        table.add_row(ranking.name, "ranking", ranking.title, "", "", "", *costs)
    return table


def _minutes(study: Study, measured: Measured) -> str:
    try:
        return f"{cost_s(study, measured) / 60:,.1f}"
    except ConfigError:
        return "unknown"
