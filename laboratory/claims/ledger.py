"""Ledger (`python -m laboratory claims report`): published and measured values, and the verdict of each claim."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from fedsel_app.records.files import write_text
from fedsel_app.wiring.configuration import AppConfig
from laboratory.claims.claim import Claim, Stage
from laboratory.claims.measured import Measured
from laboratory.claims.picture import draw_rankings
from laboratory.claims.ranking import (
    BASELINE,
    RankedMethod,
    Ranking,
    ranked_methods,
)
from laboratory.claims.tuned import Tuned, at_best, standing_rankings, tuned_table
from laboratory.claims.verdict import (
    AGAIN,
    DECIDED,
    DOES_NOT,
    HOLDS,
    NOT_RUN,
    SMALL,
    UNDECIDED,
    Pairs,
    Standing,
    Verdict,
    decide,
)
from simulation.workbench.comparison.statistics import LEVEL, p_above
from simulation.workbench.report.tables import ABSENT, Heading, Table, capital, markdown_text, number_text

WIDTH = 120
"""Characters of a line of Markdown."""
COLOURS = {HOLDS: "#009E73", DOES_NOT: "#D55E00", SMALL: "#0072B2", UNDECIDED: "#777777"}
STAGE_TITLES = {"first_stage": "Stage 1", "second_stage": "Stage 2", AGAIN: "Again"}
PIPELINE = (
    *("lr", "momentum", "solver", "mu", "clip-norm", "compressor", "error-feedback"),
    *("server-optimizer", "server-momentum", "weighting"),
)
"""Settings that each note names, because their defaults are those of HeteRo-Select and not of the claim's paper."""
HOW = (
    "[What is measured](measuring.md#claims-of-the-papers) describes the tests, their order and their adjustment, and "
    "what the columns mean."
)


def write_ledger(
    out: Path, claims: Sequence[Claim], rankings: Sequence[Ranking], measured: Measured, tuned: Sequence[Tuned] = ()
) -> list[Path]:
    """Write ledger.md and its pictures into the folder `out`. Returns their paths."""
    verdicts, standing = decide(claims, measured), standing_rankings(rankings, tuned, measured)
    out.mkdir(parents=True, exist_ok=True)
    pictures = draw_rankings(out, standing, measured)
    lines = ["# Ledger", "", *(f"![rankings, {path.stem.rpartition('-')[2]}]({path.name})" for path in pictures), ""]
    lines += ["![advantages of the claims with their intervals](ledger.svg)", ""]
    lines += [
        "## How the claims were decided",
        "",
        "```bash",
        "python -m laboratory claims run --all --out runs/claims",
    ]
    lines += ["python -m laboratory claims report --runs runs/claims --out docs", "```", ""]
    lines += [wrapped(HOW), "", wrapped(_stages(claims, verdicts)), ""]
    best = {claim.name: at_best(claim, measured) for claim in claims}
    tables = [paper_table(paper, claims, verdicts, best) for paper in papers_of(claims)]
    tables += [ranking_table(ranking, measured) for ranking in rankings if ranking in standing]
    for table in [*tables, *(tuned_table(one, measured) for one in tuned)]:
        lines += [f"## {table.title}", ""]
        lines += [replace(table, caption="").markdown().rstrip(), ""] if table.rows else []
        lines += [wrapped(table.caption), ""] if table.caption else []
    lines += ["## Rules", "", *(_item(f"**{claim.name}**: {note(claim, verdicts[claim.name])}") for claim in claims)]
    picture, markdown = out / "ledger.svg", out / "ledger.md"
    with rc_context({"svg.hashsalt": "fedsel"}):
        interval_figure(claims, verdicts).savefig(picture, metadata={"Date": None})
    write_text(markdown, "\n".join(lines) + "\n")
    return [markdown, *pictures, picture]


def _stages(claims: Sequence[Claim], verdicts: dict[str, Standing]) -> str:
    """Sentences on the second stages, the adjustment, the repetitions, and each verdict that did not come again."""
    standing = counted(claims)
    stated = {claim.name: claim.second_stage for claim in standing if claim.second_stage}
    unsized = sum(stage.effect is None for stage in stated.values())
    decided = [
        [verdict for verdict in found.verdicts[: found.deciding] if verdict.word in DECIDED]
        for claim in standing
        if (found := verdicts[claim.name]).word in DECIDED
    ]
    lost = sum(any(verdict.ledger_p >= LEVEL for verdict in found) for found in decided)
    repeated = [(claim, verdicts[claim.name]) for claim in standing if claim.again]
    same = sum(found.word_in("first_stage") == found.word_in(AGAIN) for _, found in repeated)
    sentences = [
        f"{len(stated)} claims have a second stage with fresh seeds. The number of these seeds and the rule were "
        f"committed before any of their runs; {unsized} numbers have no power analysis. Further second stages were "
        f"stated and not run; the reasons are under Rules. With the p in the ledger, {lost} of {len(decided)} decided "
        f"claims would be undecided. {len(repeated)} claims of stage 1 were repeated on ten fresh seeds: {same} have "
        "the same verdict again."
    ]
    for claim, found in repeated:
        both = zip(found.stages["first_stage"], found.stages[AGAIN], strict=True)
        for first, again in list(both)[: found.deciding]:
            if first.word != again.word:
                sentences.append(
                    f"{claim.name}, {first.pairs.metric.name}: {first.word} ({advantage_text(first)}) on the first "
                    f"seeds, {again.word} ({advantage_text(again)}) on the fresh ones. {claim.not_again}"
                )
    return " ".join(sentences)


def paper_table(paper: str, claims: Sequence[Claim], verdicts: dict[str, Standing], best: Mapping[str, str]) -> Table:
    """Table of a paper's claims: published and measured values, one row per metric; superseded claims come last.

    `best` says what is known of claims at their best rates.
    """
    columns = ["claim", "published", "data, model, seeds", "metric", "claimed side", "other side", "advantage",
               "ahead on", "verdict", "p: t, ranks", "p in the paper", "p in the ledger", "again"]  # fmt: skip
    rows: list[list[object]] = []
    family = sorted((claim for claim in claims if claim.paper == paper), key=lambda claim: bool(claim.superseded))
    for claim in family:
        standing = verdicts[claim.name]
        config, seeds = claim.configuration(claim.claimed, 1), claim.stages[standing.stage].range
        for index, verdict in enumerate(standing.verdicts):
            pairs = verdict.pairs
            lead: list[object] = ["", "", ""]
            if index == 0:
                published = f"{claim.published} ({claim.source.partition(';')[0]})"
                data = config.data.data_path if config.data.data == "npz" else config.data.data
                setup = f"{data}, {config.run.model}, {seeds[0]} to {seeds[-1]}"
                lead = [f"{claim.name}: {claim.sentence}", published, setup]
            means = [_mean(pairs.claimed), _mean(pairs.other)]
            judged = verdict.word != NOT_RUN and index < standing.deciding
            chances = [f"{p:.2g}" if judged else ABSENT for p in (verdict.p, verdict.ledger_p)]
            ahead = f"{(pairs.advantages > 0.0).sum()} of {pairs.advantages.size}"
            said = "; ".join(filter(None, (verdict_text(claim, verdict), best[claim.name])))
            judgement = said, _plain_p(pairs), *chances, again_text(standing, index)
            rows.append([*lead, pairs.metric.name, *means, advantage_text(verdict), ahead, *judgement])
    return Table("claims", paper, "", [Heading(name) for name in columns], rows)


def again_text(standing: Standing, index: int) -> str:
    """Verdict and advantage on the fresh seeds, in the metric at position `index`."""
    if AGAIN not in standing.stages:
        return ABSENT
    verdict = standing.stages[AGAIN][index]
    return verdict.word if verdict.word == NOT_RUN else f"{verdict.word}: {advantage_text(verdict)}"


def _plain_p(pairs: Pairs) -> str:
    """Unadjusted two-sided p-values of the paired t test and of the signed-rank test."""
    if pairs.advantages.size < 2 or not pairs.advantages.any():
        return ABSENT
    ahead, behind = pairs.advantages, -pairs.advantages
    both = (min(p_above(side, 0.0, ranks=ranks) for side in (ahead, behind)) for ranks in (False, True))
    return ", ".join(f"{min(1.0, 2.0 * p):.2g}" for p in both)


def _mean(values: object) -> str:
    array = np.asarray(values, np.float64)
    return number_text(float(array.mean()), -1) if array.size else ABSENT


def advantage_text(verdict: Verdict) -> str:
    """Text of an advantage and its interval: percent for a cost, points for an accuracy, otherwise the difference."""
    found, metric = verdict.advantage, verdict.pairs.metric
    if found.n < 2:
        return ABSENT
    factor, unit = (100.0, "%") if metric.ratio else (100.0, " points") if "accuracy" in metric.key else (1.0, "")
    low, mean, high = (_three_digits(factor * value) for value in (found.low, found.mean, found.high))
    return f"{mean}{unit} [{low}, {high}]"


def _three_digits(number: float) -> str:
    """Number with three significant digits, and without an exponent if it is large."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def verdict_text(claim: Claim, verdict: Verdict) -> str:
    """Verdict and its qualifications: margin, ranks, seeds needed, missed runs, the choice that it depends on."""
    pairs = verdict.pairs
    if verdict.word == NOT_RUN:
        parts = [f"{NOT_RUN}: {claim.left_open}" if claim.left_open else NOT_RUN]
    else:
        parts = [f"{verdict.word}, by less than the margin" if verdict.small else verdict.word]
        if pairs.by_ranks:
            parts.append(f"by ranks, because {'runs missed the target' if any(pairs.missed) else 'tails are heavy'}")
        elif verdict.word == UNDECIDED:
            parts.append(f"a verdict needs {_seeds(verdict.seeds_needed)}")
    if (verdict.word == SMALL or claim.rule.equal) and verdict.advantage.low * verdict.advantage.high > 0.0:
        parts.append("the interval, which is not adjusted, excludes 0")
    if claim.superseded:
        parts[0] = f"superseded by {claim.superseded_by} (was: {parts[0]})"
    elif pairs.metric.key in claim.rule.beside:
        parts[0] = f"not part of the claim: {parts[0]}"
    if any(pairs.missed):
        first, second = pairs.missed
        both = f", on {pairs.both} of these seeds both" if pairs.both else ""
        parts.append(f"runs that missed the target: {first} of the claimed side, {second} of the other side{both}")
    if claim.ours:
        parts.append(f"not stated by the paper: {claim.ours}")
    if claim.favoured:
        parts.append(f"its set-up was chosen after {claim.favoured} had favoured the claim in it")
    if claim.cannot_tell:
        parts.append(f"this set-up cannot decide: {claim.cannot_tell}")
    if claim.hangs_on:
        parts.append(f"depends on {claim.hangs_on}")
    return "; ".join(parts)


def _seeds(needed: float) -> str:
    return f"{needed:.0f} seeds" if isfinite(needed) else "more than 1,000 seeds"


def note(claim: Claim, found: Standing) -> str:
    """Source, sides, scale, rule, stages and settings of a claim in sentences."""
    sides = " against ".join(
        " ".join([side.strategy, *(f"{key}={value}" for key, value in side.settings.items())]) for side in claim.sides
    )
    scale = "the paper's protocol" if claim.scale == "protocol" else f"smaller than in the paper: {claim.reduced}"
    text = f"Superseded by {claim.superseded_by}: {claim.superseded}. " if claim.superseded else ""
    text += f"Source: {claim.source}. Sides: {sides}. Scale: {scale}. {_rule_text(claim)}"
    text += "".join(f" {STAGE_TITLES[name]}: {_stage_text(stage)}." for name, stage in claim.stages.items())
    if claim.settings or claim.preset:
        shared = [f"preset {claim.preset}"] if claim.preset else []
        text += f" Settings: {', '.join([*shared, *(f'{key}={value}' for key, value in claim.settings.items())])}."
    pipelines = dict.fromkeys(_pipeline(claim.configuration(side, 1)) for side in claim.sides)
    text += f" Pipeline: {' against '.join(pipelines)}."
    if claim.known_before:
        text += f" Known before the claim was written: {claim.known_before}."
    uniform = {side.strategy: rounds for side in claim.sides if (rounds := claim.uniform_rounds(side))}
    for strategy, rounds in uniform.items():
        text += f" {strategy} selects uniformly in its first {_rounds(rounds)}."
    if "second_stage" in found.stages:
        words = [f"{STAGE_TITLES[name].lower()} {found.word_in(name)}" for name in found.stages]
        text += f" Verdicts: {', '.join(words)}."
    return text


def _pipeline(config: AppConfig) -> str:
    values = config.values()
    return ", ".join(f"{key}={values[key]}" for key in PIPELINE)


def _rule_text(claim: Claim) -> str:
    """Rule of a claim in a sentence."""
    rule, kind = claim.rule, "share saved" if claim.metrics[0].ratio else "difference"
    outcome = "the sides are alike within the margin" if rule.equal else "the claimed side is ahead"
    return f"Rule: {outcome}. Margin of the {kind}: {rule.margin:g}. Power: {rule.power:g}."


def _rounds(count: int) -> str:
    return "round" if count == 1 else f"{count} rounds"


def _stage_text(stage: Stage) -> str:
    """Seeds of a stage, and the power analysis behind their number."""
    text = f"seeds {stage.first_seed} to {stage.first_seed + stage.seeds - 1}"
    if stage.effect is None or stage.deviation is None:
        return text
    tests = f", and Holm's adjustment over {stage.comparisons} tests" if stage.comparisons > 1 else ""
    return f"{text}, for an expected advantage of {stage.effect:g} with standard deviation {stage.deviation:g}{tests}"


def ranking_table(ranking: Ranking, measured: Measured) -> Table:
    """Table of a ranking: each method's accuracy in every currency, and how it compares with the baseline."""
    orders = {metric.name: ranked_methods(ranking, metric, measured) for metric in ranking.metrics}
    columns = [Heading("method")]
    for name in orders:
        columns += [Heading(name, 4, estimates=True), Heading("lead, points"), Heading("")]
    first = next(iter(orders.values()))
    rows: list[list[object]] = []
    for place in first:
        row: list[object] = [place.name]
        for order in orders.values():
            own = next(other for other in order if other.name == place.name)
            row += [own.accuracy, f"{100 * own.lead.mean:+.1f}" if own.word else ABSENT, own.said]
        rows.append(row)
    if first:
        caption = (
            f"Means and 95% intervals over {first[0].accuracy.n} common seeds; the lead over {BASELINE}."
            f"{_warm_ups(ranking)}{_not_run(ranking, first)} {ranking.note}"
        ).rstrip()
    else:
        caption = f"{capital(NOT_RUN)}{f': {ranking.left_open}' if ranking.left_open else ''}."
    return Table("ranking", ranking.title, caption, columns, rows)


def _warm_ups(ranking: Ranking) -> str:
    """One sentence per method that selects uniformly at first, and so equals `random` in these rounds."""
    sentences = ""
    for side in ranking.sides:
        if rounds := ranking.uniform_rounds(side):
            total = ranking.configuration(side, 1).run.rounds
            first = "first" if rounds == 1 else f"first {rounds}"
            sentences += f" {side.name} selects uniformly in the {first} of {total} rounds."
    return sentences


def _not_run(ranking: Ranking, shown: Sequence[RankedMethod]) -> str:
    """Sentence on the variants that were not run; empty if all were. Semicolons separate names with commas."""
    absent = set(ranking.variants) - {place.name for place in shown}
    return f" Not run yet: {'; '.join(sorted(absent))}." if absent else ""


def interval_figure(claims: Sequence[Claim], verdicts: dict[str, Standing]) -> Figure:
    """Figure of the advantages in the first metric of each claim, with 95% intervals: costs left, scores right."""
    known = [
        (claim, found)
        for claim in claims
        if not claim.superseded and (found := verdicts[claim.name].verdicts[0]).advantage.n > 1
    ]
    panels = [[(claim, found) for claim, found in known if claim.metrics[0].ratio == ratio] for ratio in (True, False)]
    figure = Figure(figsize=(12.0, 1.2 + 0.28 * max(1, *map(len, panels))), layout="constrained")
    titles = "share of the cost saved", "difference, as a share of the rule's 'margin'"
    for axes, panel, title in zip(figure.subplots(1, 2), panels, titles, strict=True):
        for row, (claim, found) in enumerate(panel):
            unit = 1.0 if claim.metrics[0].ratio else claim.rule.margin
            advantage = found.advantage
            axes.plot([advantage.low / unit, advantage.high / unit], [row, row], color=COLOURS[found.word], lw=2)
            axes.plot([advantage.mean / unit], [row], "o", color=COLOURS[found.word])
        axes.axvline(0.0, color="black", lw=0.8)
        axes.set_yticks(range(len(panel)), [claim.name for claim, _ in panel], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(title)
    handles = [figure.axes[0].plot([], [], "o-", color=colour, label=word)[0] for word, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def papers_of(claims: Sequence[Claim]) -> list[str]:
    """Papers of the claims, in their order."""
    return list(dict.fromkeys(claim.paper for claim in claims))


def counted(claims: Sequence[Claim]) -> list[Claim]:
    """Claims that are counted: statements of papers that are not superseded."""
    return [claim for claim in claims if not claim.superseded and not claim.ours]


def wrapped(text: str, first: str = "", later: str = "") -> str:
    """Lines of Markdown; a name with hyphens stays on one line."""
    return fill(
        text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def _item(text: str) -> str:
    """Item of a Markdown list, wrapped."""
    return wrapped(markdown_text(text), "- ", "  ")
