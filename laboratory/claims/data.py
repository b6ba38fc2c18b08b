"""Data of the ledger: every number of the claims and rankings as CSV, and what the columns mean.

Numbers have eight significant digits. Intervals are those of 95%, unadjusted. An absent value is empty.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedsel_app.config import Value
from fedsel_app.records.files import write_text
from fedsel_app.wiring.configuration import AppConfig
from laboratory.claims.claim import Claim, Stage
from laboratory.claims.measured import Measured, run_of
from laboratory.claims.picture import CURRENCIES, placed
from laboratory.claims.ranking import RankedMethod, Ranking, evidence, ranked_methods
from laboratory.claims.statistics import p_above
from laboratory.claims.study import Side, Study
from laboratory.claims.tuned import Tuned, at_best, standing_rankings
from laboratory.claims.verdict import NOT_RUN, Pairs, Standing, Verdict
from laboratory.data_sets import short_name
from simulation.workbench.comparison.plan_files import settings_text
from strategies.method import SelectionMethod
from strategies.roster import Needs

Row = dict[str, object]
PIPELINE = (
    *("lr", "momentum", "solver", "mu", "clip-norm", "compressor", "error-feedback"),
    *("server-optimizer", "server-momentum", "weighting"),
)
"""Settings of the column "pipeline": their defaults are those of HeteRo-Select, not those of the claim's paper."""
CLAIMS = {
    "claim": "name of the claim, which is that of its file in laboratory/claims/",
    "paper": "paper; the tests of its claims are adjusted together",
    "statement": "the claim in our own words",
    "published": "published numbers",
    "source": "table, figure or section of these numbers",
    "scale": "protocol: at the paper's own protocol; reduced: smaller",
    "reductions": "what is smaller, and why the claim should survive it",
    "data": "data set",
    "model": "model",
    "claimed side": "method and own settings of the side that the statement favours",
    "other side": "the same of the side that it is compared with",
    "settings": "settings that both sides share, beside the defaults",
    "pipeline": "settings of training, compression and aggregation; those of both sides if they differ",
    "uniform rounds": "first rounds in which a side selects uniformly, although its method does not",
    "stage": "first_stage, second_stage (fresh seeds, stated before they ran) or again (repetition)",
    "gives the verdict": "yes in the rows of the stage that decides",
    "first seed": "first seed of the stage",
    "last seed": "last seed of the stage",
    "expected advantage": "advantage that the power analysis of the stage assumes",
    "expected deviation": "standard deviation that it assumes",
    "expected tests": "number of tests in Holm's adjustment that it assumes",
    "metric": "what is compared",
    "role": "decides; tested beside: the paper does not count it; or beside: neither decides nor is adjusted",
    "budget": "how much may be spent, in accuracies at a budget",
    "rule": "ahead: the claimed side must be ahead; alike: the sides must differ by less than the margin",
    "margin": "advantage below which a difference is called small",
    "power": "power that the rule asks for",
    "pairs": "seeds that both sides have",
    "claimed mean": "mean of the claimed side",
    "other mean": "mean of the other side",
    "advantage": "mean advantage of the claimed side: a share of the cost that is saved, or a difference",
    "advantage (low)": "lower end of its interval",
    "advantage (high)": "upper end of its interval",
    "ahead on": "seeds on which the claimed side is ahead",
    "claimed missed": "runs of the claimed side that missed the target",
    "other missed": "runs of the other side that missed it",
    "both missed": "seeds on which both missed it, which are left out",
    "verdict": "holds, does not hold, smaller than the margin, undecided, or not run",
    "by less than the margin": "yes if a side is ahead, and shown to be so by less than the margin",
    "by ranks": "yes if signed-rank tests decide: runs missed the target, or tails are heavy",
    "p (t)": "unadjusted two-sided p of the paired t test",
    "p (ranks)": "unadjusted two-sided p of the signed-rank test",
    "p (paper)": "p adjusted over the claims of the paper; it decides",
    "p (ledger)": "p adjusted over the claims of all papers",
    "seeds needed": "seeds that would give a verdict if the advantage is the true one; inf: more than 1,000",
    "favoured by": "what had favoured the claim in this set-up before the set-up was chosen",
    "depends on": "setting on which the outcome depends",
    "cannot tell": "why the set-up cannot tell the sides apart",
    "not stated by the paper": "why it is no statement of the paper; such a claim is not counted",
    "left open": "why it is not run",
    "known before": "results that were known when the claim was written",
    "not again": "what it means that the repetition had another verdict",
    "superseded by": "claim that replaces it; a superseded claim is not counted",
    "superseded because": "why",
    "at best settings": "what came out with each side at its best rate",
}
"""Column of claims.csv -> what it means. A row is a claim in one metric and one stage."""
RANKINGS = {
    "ranking": "name of the ranking, which is that of its file in laboratory/claims/",
    "title": "workload",
    "kind": "tuned: each side searched its settings; untuned: all have the same",
    "replaced by": "tuned ranking of the same workload",
    "pipeline": "training, compression and aggregation of all sides",
    "side": "method, or name of a variant",
    "strategy": "selection method of the side",
    "own settings": "settings of this side alone",
    "chosen settings": "settings that its search chose",
    "at an end of the grid": "chosen settings that are the least or the largest of three values or more",
    "failed searches": "runs of its search that failed and count as the worst",
    "uniform rounds": "first rounds in which it selects uniformly, although its method does not",
    "needs": "what the method must know of its clients, beside their numbers of examples",
    "metric": "what is compared",
    "budget": "how much may be spent; one curve has several",
    "first seed": "first seed",
    "last seed": "last seed",
    "pairs": "seeds that all sides have",
    "accuracy": "mean of the metric",
    "accuracy (low)": "lower end of its interval",
    "accuracy (high)": "upper end of its interval",
    "baseline": "side with which the others are compared",
    "lead": "mean of the metric minus that of the baseline, paired by seed",
    "lead (low)": "lower end of its interval",
    "lead (high)": "upper end of its interval",
    "p (t)": "unadjusted two-sided p of the paired t test",
    "p (ranks)": "unadjusted two-sided p of the signed-rank test",
    "p (all workloads)": "p (t), adjusted over all methods and workloads of the metric and pipeline (Holm)",
    "deviation": "standard deviation of the paired differences",
    "seeds for a point": "seeds that a lead of one point needs with this deviation (power 0.8, first step of Holm)",
    "verdict": "ahead, behind, within 1.5 points, or not resolved; adjusted over the sides",
    "by less than the margin": "yes if it is ahead or behind, and shown to be so by less than 1.5 points",
    "hangs on": "number of seeds, without any one of which it would be neither ahead nor behind",
    "pooled lead": "mean lead over the standing workloads (random effects: DerSimonian and Laird)",
    "pooled lead (low)": "lower end of its interval (Hartung and Knapp)",
    "pooled lead (high)": "upper end of its interval",
    "workloads": "workloads that are pooled",
}
"""Column of rankings.csv -> what it means. A row is a side in one metric."""


NEEDS = {
    "label_counts": "label counts of all clients",
    "loss_probe": "losses of all candidates",
    "reports": "numbers that the trained clients measure",
    "class_biases": "biases of the classes",
    "output_biases": "biases of the outputs",
    "updates": "last update of each client",
    "links": "speeds of all clients",
}
"""Need of a method -> how it is told."""


def write_data(
    out: Path,
    claims: Sequence[Claim],
    rankings: Sequence[Ranking],
    tuned: Sequence[Tuned],
    verdicts: Mapping[str, Standing],
    measured: Measured,
) -> list[Path]:
    """Write claims.csv, rankings.csv and columns.csv into the folder `out`. Returns their paths."""
    of_claims = [row for claim in claims for row in claim_rows(claim, verdicts[claim.name], measured)]
    of_rankings = [row for ranking in rankings for row in ranking_rows(ranking, measured, _untuned(ranking, tuned))]
    of_rankings += [row for one in tuned for row in tuned_rows(one, measured)]
    add_evidence(of_rankings, standing_rankings(rankings, tuned, measured), measured)
    meanings = {"claims.csv": CLAIMS, "rankings.csv": RANKINGS}
    columns: list[Row] = [
        {"file": name, "column": column, "meaning": meaning}
        for name, of in meanings.items()
        for column, meaning in of.items()
    ]
    files = {
        "claims.csv": csv_text(CLAIMS, of_claims),
        "rankings.csv": csv_text(RANKINGS, of_rankings),
        "columns.csv": csv_text(("file", "column", "meaning"), columns),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_text(out / name, text)
    return [out / name for name in files]


def csv_text(columns: Iterable[str], rows: Iterable[Row]) -> str:
    """CSV text with a line for each row; a column that a row lacks is empty."""
    output = io.StringIO()
    writer = csv.DictWriter(output, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return output.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.8g}"
    return value


def claim_rows(claim: Claim, standing: Standing, measured: Measured) -> list[Row]:
    """Rows of a claim, one for each stage and metric, with the columns `CLAIMS`."""
    config = claim.configuration(claim.claimed, 1)
    preset = {"preset": claim.preset} if claim.preset else {}
    about = {
        "claim": claim.name,
        "paper": claim.paper,
        "statement": claim.sentence,
        "published": claim.published,
        "source": claim.source,
        "scale": claim.scale,
        "reductions": claim.reduced,
        "data": config.data.data_path if config.data.data == "npz" else short_name(config.data.data),
        "model": config.run.model,
        "claimed side": _side(claim.claimed),
        "other side": _side(claim.other),
        "settings": _settings({**preset, **claim.settings}),
        "pipeline": " against ".join(dict.fromkeys(_pipeline(claim.configuration(side, 1)) for side in claim.sides)),
        "uniform rounds": _uniform(claim),
        "rule": "alike" if claim.rule.equal else "ahead",
        "margin": claim.rule.margin,
        "power": claim.rule.power,
        "favoured by": claim.favoured,
        "depends on": claim.hangs_on,
        "cannot tell": claim.cannot_tell,
        "not stated by the paper": claim.ours,
        "left open": claim.left_open,
        "known before": claim.known_before,
        "not again": claim.not_again,
        "superseded by": claim.superseded_by,
        "superseded because": claim.superseded,
        "at best settings": at_best(claim, measured),
    }
    return [
        about
        | {"stage": name, "gives the verdict": name == standing.stage, **_stage(stage)}
        | _verdict(claim, index, verdict)
        for name, stage in claim.stages.items()
        for index, verdict in enumerate(standing.stages[name])
    ]


def _stage(stage: Stage) -> Row:
    """Seeds of a stage, and the power analysis behind their number."""
    return {
        "first seed": stage.range[0],
        "last seed": stage.range[-1],
        "expected advantage": stage.effect,
        "expected deviation": stage.deviation,
        "expected tests": None if stage.effect is None else stage.comparisons,
    }


def _verdict(claim: Claim, index: int, verdict: Verdict) -> Row:
    """Numbers and verdict of a claim in the metric at position `index`."""
    pairs, advantage, rule = verdict.pairs, verdict.advantage, claim.rule
    decides, tested = index < len(rule.metrics), index < len(rule.tested)
    known: Row = {
        "metric": pairs.metric.name,
        "role": "decides" if decides else "tested beside" if tested else "beside",
        "budget": pairs.metric.budget,
        "pairs": pairs.advantages.size,
        "verdict": verdict.word,
    }
    if verdict.word == NOT_RUN:
        return known
    sides = (("claimed mean", pairs.claimed), ("other mean", pairs.other)) if pairs.advantages.size else ()
    return {
        **known,
        **{key: values.mean() for key, values in sides},
        "advantage": advantage.mean,
        "advantage (low)": advantage.low,
        "advantage (high)": advantage.high,
        "ahead on": int((pairs.advantages > 0.0).sum()),
        "claimed missed": pairs.missed[0],
        "other missed": pairs.missed[1],
        "both missed": pairs.both,
        "by less than the margin": verdict.small,
        "by ranks": pairs.by_ranks,
        **_plain_p(pairs),
        **({"p (paper)": verdict.p, "p (ledger)": verdict.ledger_p} if tested else {}),
        "seeds needed": verdict.seeds_needed,
    }


def _plain_p(pairs: Pairs) -> Row:
    """Unadjusted two-sided p-values of the paired t test and of the signed-rank test; empty if there are none."""
    if pairs.advantages.size < 2 or not pairs.advantages.any():
        return {}
    both = pairs.advantages, -pairs.advantages
    tests = {"p (t)": False, "p (ranks)": True}
    return {key: min(1.0, 2.0 * min(p_above(side, 0.0, ranks=ranks) for side in both)) for key, ranks in tests.items()}


def _side(side: Side) -> str:
    return " ".join([side.strategy, *(f"{key}={value}" for key, value in side.settings.items())])


def _settings(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _pipeline(config: AppConfig) -> str:
    values = config.values()
    return _settings({key: values[key] for key in PIPELINE})


def _uniform(study: Study) -> str:
    """First rounds in which sides select uniformly, by method."""
    rounds = {side.name: study.uniform_rounds(side) for side in study.sides}
    return ", ".join(f"{name} {count}" for name, count in rounds.items() if count)


def ranking_rows(ranking: Ranking, measured: Measured, about: Row) -> list[Row]:
    """Rows of a ranking, one for each metric and side that was run: columns of `RANKINGS`, among them `about`."""
    sides = {side.name: side for side in ranking.sides}
    return [
        {"ranking": ranking.name, "title": ranking.title}
        | {"first seed": ranking.seeds[0], "last seed": ranking.seeds[-1], "baseline": ranking.baseline}
        | {"strategy": sides[place.name].strategy, "own settings": _settings(sides[place.name].settings)}
        | {"uniform rounds": ranking.uniform_rounds(sides[place.name]), "metric": metric.name}
        | {"needs": needs_text(ranking, sides[place.name]), "budget": metric.budget, "pipeline": ranking.pipeline}
        | _place(place)
        | {key: value[place.name] if isinstance(value, Mapping) else value for key, value in about.items()}
        for metric in ranking.metrics
        for place in ranked_methods(ranking, metric, measured)
    ]


def needs_text(study: Study, side: Side) -> str:
    """What the method of a side must know."""
    config = study.configuration(side, 0)
    needs: Needs = config.strategy.needs(config.method)
    learns = needs.round_updates and not needs.updates and config.strategy.update is not SelectionMethod.update
    texts = [text for need, text in NEEDS.items() if getattr(needs, need)]
    return ", ".join([*texts, *(["updates of single clients"] if learns else [])])


def add_evidence(rows: Iterable[Row], standing: Sequence[Ranking], measured: Measured) -> None:
    """Add the columns on all workloads to the rows of the standing rankings."""
    names = {ranking.name: ranking.title for ranking in standing}
    for key in CURRENCIES:
        found = evidence(placed(standing, key, measured))
        titles = {metric.name for ranking in standing for metric in ranking.metrics if metric.key == key}
        for row in rows:
            side, ranking = str(row["side"]), str(row["ranking"])
            if ranking in names and row["metric"] in titles and side in found and ranking in found[side].p:
                lead = found[side].lead
                row["p (all workloads)"] = found[side].p[ranking]
                row |= {"pooled lead": lead.mean, "pooled lead (low)": lead.low, "pooled lead (high)": lead.high}
                row["workloads"] = lead.n


def _place(place: RankedMethod) -> Row:
    found: Row = {
        "side": place.name,
        "pairs": place.accuracy.n,
        "accuracy": place.accuracy.mean,
        "accuracy (low)": place.accuracy.low,
        "accuracy (high)": place.accuracy.high,
    }
    if not place.word:
        return found
    lead = {"lead": place.lead.mean, "lead (low)": place.lead.low, "lead (high)": place.lead.high, "p (t)": place.p}
    spread: Row = {"p (ranks)": place.p_ranks, "deviation": place.deviation, "seeds for a point": place.needed}
    words: Row = {"verdict": place.word, "by less than the margin": place.small, "hangs on": place.hangs_on}
    return {**found, **lead, **spread, **words}


def tuned_rows(tuned: Tuned, measured: Measured) -> list[Row]:
    """Rows of a tuned ranking; none until all its runs are measured."""
    ranking, chosen = tuned.compared(measured), tuned.chosen(measured)
    if ranking is None or chosen is None:
        return []
    search = tuned.search
    failed = {
        arm.name: sum(
            "failed" in measured.rows.get(run_of(search, search.tried(arm, cell), seed), {})
            for cell in search.cells
            for seed in search.seeds
        )
        for arm in tuned.sides
    }
    about: Row = {
        "kind": "tuned",
        "own settings": {arm.name: _settings(arm.settings) for arm in tuned.sides},
        "chosen settings": {name: settings_text(cell) for name, cell in chosen.items()},
        "at an end of the grid": {name: ", ".join(search.on_edge(cell)) for name, cell in chosen.items()},
        "failed searches": failed,
    }
    return ranking_rows(ranking, measured, about)


def _untuned(ranking: Ranking, tuned: Sequence[Tuned]) -> Row:
    """Columns of an untuned ranking."""
    return {"kind": "untuned", "replaced by": ", ".join(one.name for one in tuned if one.replaces == ranking.name)}
