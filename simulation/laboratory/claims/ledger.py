"""Ledger (`fedsel claims report`): published and measured values, and the verdict of each claim."""

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from fedsel_app.records.files import write_text
from simulation.comparison.statistics import LEVEL
from simulation.laboratory.claims.claim import Claim, Stage
from simulation.laboratory.claims.measured import Measured
from simulation.laboratory.claims.ranking import Place, Ranking, advice, places, ranking_advice
from simulation.laboratory.claims.verdict import (
    DOES_NOT,
    HOLDS,
    NO_DIFFERENCE,
    NOT_RUN,
    UNDECIDED,
    Standing,
    Verdict,
    decide,
)
from simulation.report.html import html
from simulation.report.tables import ABSENT, Column, Table, capital, markdown_text, number_text

WIDTH = 120
"""Characters of a line of Markdown."""
COMMAND = "fedsel claims run --all --out runs/claims"
COLOURS = {HOLDS: "#009E73", DOES_NOT: "#D55E00", NO_DIFFERENCE: "#0072B2", UNDECIDED: "#777777"}
COUNTED = {
    HOLDS: ("holds", "hold"),
    DOES_NOT: ("does not hold", "do not hold"),
    NO_DIFFERENCE: ("shows no difference", "show no difference"),
    UNDECIDED: ("undecided", "undecided"),
    NOT_RUN: ("not run", "not run"),
}
COMPARED = (
    "A claim compares two methods, or two settings of one, on the same seeds with a paired t test, and holds only if "
    "it holds in every measure that its sentence names. Nearly all runs are smaller than in the papers, so a claim "
    "that does not hold here may still be right at its paper's scale. A ranking compares the accuracy of all methods "
    "on one workload (data set, model and skew), at equal bytes of all traffic, equal simulated seconds or equal "
    "rounds."
)
METHOD = (
    "The seeds fix the clients' data, their links and the initial weights. In ACM's terms a claim tests "
    "replicability: other people repeat an experiment with a code of their own. Fresh seeds test repeatability: the "
    "same people repeat their own experiment. Claims on one set-up share runs, so their verdicts are not independent. "
    "Undecided: there are too few seeds for a verdict, or too many runs missed their target. A superseded claim is "
    "not counted: its sides turned out to differ in more than the method, its set-up could not tell them apart or "
    "varied too much, or it was half of another claim. The section Rules has the reason for each. A ranking tests "
    "every method against the first, and against random selection (paired t tests, Holm over the methods)."
)
FEW = 5
"""Papers with at most this number of claims share one line of the counts."""
OTHERS = "Baselines"
CAPTION = (
    "The tables show means over the seeds of the stage that gives the verdict. The advantage of the claimed side is "
    "paired by seed and has a 95% interval. For a cost it is the share saved, and for a score the difference. Each p "
    "is the p-value of one test, adjusted (Holm) for the number of tests of the same stage, in the paper or in the "
    "whole ledger. Superseded claims are adjusted apart. The p in the paper decides the verdict. A run that missed "
    "its target counts with its whole cost. A seed on which both sides missed the target is left out. Stage 1 has "
    "seeds from 1 on. Stage 2 has fresh seeds, from 2001 on. The verdict of stage 2 uses only these seeds, and needs "
    "all of them. Again: a claim that stage 1 decided, repeated on ten fresh seeds."
)
STAGE_TITLES = {"first_stage": "Stage 1", "second_stage": "Stage 2", "again": "Again"}
STAGE_NUMBERS = {"first_stage": 1, "second_stage": 2}


def write_ledger(out: Path, claims: Sequence[Claim], rankings: Sequence[Ranking], measured: Measured) -> list[Path]:
    """Write ledger.md, ledger.html and ledger.svg into the folder `out`. Returns their paths."""
    verdicts = decide(claims, measured)
    outcome = summary(claims, rankings, verdicts, measured)
    counts = paper_counts(claims, verdicts)
    method = [METHOD, _stages(claims, verdicts), CAPTION]
    tables = [paper_table(paper, claims, verdicts) for paper in _papers(claims)]
    tables += [ranking_table(ranking, measured) for ranking in rankings]
    notes = [note(claim, verdicts[claim.name]) for claim in claims]
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "ledger.svg"
    with rc_context({"svg.hashsalt": "fedsel"}):
        interval_figure(claims, verdicts).savefig(picture, metadata={"Date": None})
    markdown = out / "ledger.md"
    write_text(markdown, markdown_page(outcome, counts, method, tables, notes))
    page = out / "ledger.html"
    text = html(
        "ledger",
        title="Ledger of claims",
        summary=outcome,
        drawing=base64.b64encode(picture.read_bytes()).decode(),
        counts=[f"{paper}: {sentence}" for paper, sentence in counts],
        command=COMMAND,
        method=method,
        tables=tables,
        notes=[f"{name}: {sentence}" for name, sentence in notes],
    )
    write_text(page, text)
    return [page, markdown, picture]


def _papers(claims: Sequence[Claim]) -> list[str]:
    return list(dict.fromkeys(claim.paper for claim in claims))


def summary(
    claims: Sequence[Claim], rankings: Sequence[Ranking], verdicts: dict[str, Standing], measured: Measured
) -> str:
    """The outcome of all claims and rankings in about ten sentences."""
    standing = _standing(claims)
    total = f"{len(standing)} claims of the papers: {_counts(standing, verdicts)}."
    return " ".join([total, COMPARED, *advice(rankings, measured)])


def paper_counts(claims: Sequence[Claim], verdicts: dict[str, Standing]) -> list[tuple[str, str]]:
    """Each paper with many claims, and all others together: their verdicts, and the names of those that hold."""
    standing, lines = _standing(claims), []
    papers = [paper for paper in _papers(claims) if sum(claim.paper == paper for claim in standing) > FEW]
    for paper in [*papers, OTHERS]:
        family = [
            claim for claim in standing if claim.paper == paper or (paper == OTHERS and claim.paper not in papers)
        ]
        holding = [claim.name for claim in family if verdicts[claim.name].word == HOLDS]
        if family:
            lines.append((paper, f"{_counts(family, verdicts)}. These hold: {', '.join(holding) or 'none'}."))
    return lines


def _standing(claims: Sequence[Claim]) -> list[Claim]:
    return [claim for claim in claims if not claim.superseded]


def _counts(claims: Sequence[Claim], verdicts: dict[str, Standing]) -> str:
    """Number of claims with each verdict."""
    counts = Counter(verdicts[claim.name].word for claim in claims)
    return ", ".join(f"{counts[word]} {texts[counts[word] > 1]}" for word, texts in COUNTED.items() if counts[word])


def _stages(claims: Sequence[Claim], verdicts: dict[str, Standing]) -> str:
    """Sentences on the second stages, on the repetitions, and on each verdict that did not come again."""
    standing = _standing(claims)
    stated = {claim.name: claim.second_stage for claim in standing if claim.second_stage}
    ran = sum(verdicts[name].word_in("second_stage") != NOT_RUN for name in stated)
    unsized = sum(stage.effect is None for stage in stated.values())
    dropped = [verdicts[claim.name] for claim in claims if claim.superseded and claim.second_stage]
    open_still = sum(found.word == UNDECIDED for found in dropped)
    repeated = [
        (claim, found)
        for claim in standing
        if claim.again and (found := verdicts[claim.name]).word_in("again") != NOT_RUN
    ]
    same = sum(found.word_in("first_stage") == found.word_in("again") for _, found in repeated)
    sentences = [
        f"{len(stated)} claims have a second stage with fresh seeds. The number of these seeds and the rule were "
        f"committed before any of their runs; {unsized} numbers have no power analysis. The second stage has run for "
        f"{ran} of these claims. {len(dropped)} superseded claims had one too, and {open_still} of them stayed "
        "undecided; claims in other set-ups replace them. Further second stages were stated and not run; the reasons "
        f"are under Rules. {len(repeated)} other decided claims were repeated on ten fresh seeds: {same} have the same "
        "verdict again."
    ]
    for claim, found in repeated:
        both = zip(found.stages["first_stage"], found.stages["again"], strict=True)
        for first, again in list(both)[: found.deciding]:
            if first.word != again.word:
                sentences.append(
                    f"{claim.name}, {first.pairs.metric.name}: {first.word} ({advantage_text(first)}) on the first "
                    f"seeds, {again.word} ({advantage_text(again)}) on the fresh ones. {claim.not_again}"
                )
    return " ".join(sentences)


def paper_table(paper: str, claims: Sequence[Claim], verdicts: dict[str, Standing]) -> Table:
    """Table of a paper's claims: published and measured values, one row per metric; superseded claims come last."""
    columns = ["claim", "published", "stage", "metric", "claimed side", "other side", "advantage", "seeds", "verdict"]
    columns += ["p in the paper", "p in the ledger", "again"]
    rows: list[list[object]] = []
    family = sorted((claim for claim in claims if claim.paper == paper), key=lambda claim: bool(claim.superseded))
    for claim in family:
        standing = verdicts[claim.name]
        for index, verdict in enumerate(standing.verdicts):
            pairs = verdict.pairs
            lead: list[object] = ["", "", ""]
            if index == 0:
                lead = [f"{claim.name}: {claim.sentence}", claim.published, STAGE_NUMBERS[standing.stage]]
            means = [_mean(pairs.claimed), _mean(pairs.other)]
            judged = verdict.word != NOT_RUN and index < standing.deciding
            chances = [f"{p:.2g}" if judged else ABSENT for p in (verdict.p, verdict.ledger_p)]
            rows.append([*lead, pairs.metric.name, *means, advantage_text(verdict), verdict.pairs.advantages.size,
                         verdict_text(claim, verdict), *chances, again_text(standing, index)])  # fmt: skip
    return Table("claims", paper, "", [Column(name) for name in columns], rows)


def again_text(standing: Standing, index: int) -> str:
    """Verdict and advantage on the fresh seeds, in the metric at position `index`."""
    if "again" not in standing.stages:
        return ABSENT
    verdict = standing.stages["again"][index]
    return verdict.word if verdict.word == NOT_RUN else f"{verdict.word}: {advantage_text(verdict)}"


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
    """Verdict and its qualifications: seeds needed, runs that missed the target, the choice that it depends on."""
    if claim.superseded:
        return f"superseded (was: {verdict.word})"
    if verdict.word == NOT_RUN:
        return f"{NOT_RUN}: {claim.left_open}" if claim.left_open else NOT_RUN
    if verdict.pairs.metric.key in claim.rule.beside:
        return f"not part of the claim: {verdict.word}"
    parts = [verdict.word]
    if verdict.word == UNDECIDED and verdict.p < LEVEL:
        parts.append("no verdict at any number of seeds, because runs missed the target")
    elif verdict.word == UNDECIDED:
        parts.append(f"a verdict needs {_seeds(verdict.seeds_needed)}")
    if any(verdict.pairs.missed):
        first, second = verdict.pairs.missed
        parts.append(f"runs that missed the target: {first} of the claimed side, {second} of the other side")
    if claim.cannot_tell:
        parts.append(f"this set-up cannot decide: {claim.cannot_tell}")
    if claim.hangs_on:
        parts.append(f"depends on {claim.hangs_on}")
    return "; ".join(parts)


def _seeds(needed: float) -> str:
    return f"{needed:.0f} seeds" if isfinite(needed) else "more than 1,000 seeds"


def note(claim: Claim, found: Standing) -> tuple[str, str]:
    """Name of a claim, and its source, sides, scale, rule and stages in sentences."""
    sides = " against ".join(
        " ".join([side.strategy, *(f"{key}={value}" for key, value in side.settings.items())]) for side in claim.sides
    )
    scale = "the paper's protocol" if claim.scale == "protocol" else f"smaller than in the paper: {claim.reduced}"
    text = f"Superseded: {claim.superseded}. " if claim.superseded else ""
    text += f"Source: {claim.source}. Sides: {sides}. Scale: {scale}. {_rule_text(claim)}"
    text += "".join(f" {STAGE_TITLES[name]}: {_stage_text(stage)}." for name, stage in claim.stages.items())
    if claim.settings or claim.preset:
        shared = [f"preset {claim.preset}"] if claim.preset else []
        text += f" Settings: {', '.join([*shared, *(f'{key}={value}' for key, value in claim.settings.items())])}."
    if claim.known_before:
        text += f" Known before the claim was written: {claim.known_before}."
    for side in claim.sides:
        if uniform := claim.uniform_rounds(side):
            text += f" {side.strategy} selects uniformly in its first {_rounds(uniform)}."
    if "second_stage" in found.stages:
        words = [
            f"stage {number} {found.word_in(name)}" for name, number in STAGE_NUMBERS.items() if name in found.stages
        ]
        text += f" Verdicts: {', '.join(words)}."
    return claim.name, text


def _rule_text(claim: Claim) -> str:
    """Rule of a claim in two sentences."""
    rule, kind = claim.rule, "share saved" if claim.metrics[0].ratio else "difference"
    ahead, behind, within = f"above {rule.confirm:g}", f"below {rule.refute:g}", f"within ±{rule.margin:g}"
    if rule.equal:
        outcomes = f"{within} the claim holds, and {ahead} or {behind} it does not hold"
    else:
        outcomes = f"{ahead} the claim holds, {behind} it does not hold, and {within} there is no difference"
    return f"Rule for the {kind}: {outcomes}. Power: {rule.power:g}."


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
    """Table of a ranking: each method's place and accuracy in every currency."""
    by_metric = {metric.name: places(ranking, metric, measured) for metric in ranking.metrics}
    columns = [Column("method")]
    for name in by_metric:
        columns += [Column("place"), Column(name, 4, estimates=True)]
    first = next(iter(by_metric.values()))
    rows: list[list[object]] = []
    for place in first:
        row: list[object] = [place.strategy]
        for order in by_metric.values():
            index = next(index for index, other in enumerate(order) if other.strategy == place.strategy)
            mark = "" if order[index].behind else " (tied)" if index else ""
            row += [f"{index + 1}{mark}", order[index].accuracy]
        rows.append(row)
    if first:
        caption = (
            f"{ranking_advice(ranking, measured)} Means and 95% intervals over {first[0].accuracy.n} common seeds. "
            "Tied: the difference from the first is not significant (paired t tests, Holm over the methods)."
            f"{_warm_ups(ranking)}{_not_run(ranking, first)}{' ' if ranking.note else ''}{ranking.note}"
        )
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


def _not_run(ranking: Ranking, shown: Sequence[Place]) -> str:
    """Sentence on the variants that were not run; empty if all were. Semicolons separate names with commas."""
    absent = set(ranking.variants) - {place.strategy for place in shown}
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
    titles = "share of the cost saved", "difference, as a share of the rule's 'confirm' or 'margin'"
    for axes, panel, title in zip(figure.subplots(1, 2), panels, titles, strict=True):
        for row, (claim, found) in enumerate(panel):
            unit = 1.0 if claim.metrics[0].ratio else max(claim.rule.confirm, claim.rule.margin)
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


def markdown_page(
    outcome: str,
    counts: Sequence[tuple[str, str]],
    method: Sequence[str],
    tables: Sequence[Table],
    notes: Sequence[tuple[str, str]],
) -> str:
    """Markdown of the ledger."""
    lines = ["# Ledger", "", _wrapped(markdown_text(outcome)), ""]
    lines += ["![advantages of the claims with their intervals](ledger.svg)", ""]
    lines += ["## Claims by paper", "", *(_item(f"**{paper}:** {text}") for paper, text in counts), ""]
    lines += ["## How the claims were decided", ""]
    lines += ["```bash", COMMAND, "fedsel claims report --runs runs/claims --out docs", "```", ""]
    for paragraph in method:
        lines += [_wrapped(paragraph), ""]
    for table in tables:
        lines += [f"## {table.title}", "", replace(table, caption="").markdown().rstrip(), ""]
        lines += [_wrapped(table.caption), ""] if table.caption else []
    lines += ["## Rules", "", *(_item(f"**{name}**: {text}") for name, text in notes)]
    return "\n".join(lines) + "\n"


def _item(text: str) -> str:
    """Item of a Markdown list, wrapped."""
    return _wrapped(markdown_text(text), "- ", "  ")


def _wrapped(text: str, first: str = "", later: str = "") -> str:
    """Lines of Markdown; a name with hyphens stays on one line."""
    return fill(
        text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
