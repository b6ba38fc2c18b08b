"""Ledger: a page with the pictures and symbols of the rankings, and a row for each paper (`claims report`).

All numbers are in the files of `data`.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill

from fedsel_app.records.files import write_text
from laboratory.claims.claim import Claim
from laboratory.claims.data import write_data
from laboratory.claims.markdown import markdown, markdown_text
from laboratory.claims.measured import Measured
from laboratory.claims.picture import CURRENCIES, NAMES, SYMBOLS, Places, draw_rankings, methods_of, placed, workload
from laboratory.claims.ranking import RankedMethod, Ranking, evidence, ranked_methods
from laboratory.claims.tuned import Tuned, standing_rankings
from laboratory.claims.verdict import (
    AGAIN,
    DECIDED,
    DOES_NOT,
    HOLDS,
    NOT_RUN,
    SMALL,
    UNDECIDED,
    Standing,
    Verdict,
    decide,
)
from laboratory.data_sets import short_name
from simulation.workbench.comparison.statistics import LEVEL, Estimate, holm
from simulation.workbench.report.tables import ABSENT, Heading, Table

WIDTH = 120
"""Characters of a line of Markdown."""
WORDS = {HOLDS: "holds", DOES_NOT: "does not hold", SMALL: "within margin", UNDECIDED: "open", NOT_RUN: "not run"}
"""Verdict -> its word in the counts."""
WHOLE_TRAFFIC = "traffic_mb"
UNITS = {"traffic_mb": "MB", "time_s": "s", "rounds": "rounds"}
NO_NUMBER = "no number at hand"
PLAIN_PIPELINE = "plain FedAvg"


def write_ledger(
    out: Path,
    claims: Sequence[Claim],
    rankings: Sequence[Ranking],
    measured: Measured,
    tuned: Sequence[Tuned] = (),
    data: Path | None = None,
) -> list[Path]:
    """Write ledger.md and its pictures into the folder `out`, and its data into `data`. Returns their paths."""
    verdicts, standing = decide(claims, measured), standing_rankings(rankings, tuned, measured)
    out.mkdir(parents=True, exist_ok=True)
    files = write_data(data or out, claims, rankings, tuned, verdicts, measured)
    pictures = draw_rankings(out, standing, measured)
    links = (f"[{path.name}]({Path(os.path.relpath(path, out)).as_posix()})" for path in files)
    lines = ["# Ledger", "", *map(_picture, pictures), "", *_rankings(standing, measured)]
    lines += _plain_rankings(tuned, measured)
    lines += ["## Claims of the papers", "", wrapped(_counts(claims, verdicts)), ""]
    lines += [markdown(paper_table(claims, verdicts)), "", wrapped(_stages(claims, verdicts)), ""]
    lines += ["## Data", "", wrapped(DATA.format(*links))]
    page = out / "ledger.md"
    write_text(page, "\n".join(lines) + "\n")
    return [page, *pictures, *files]


DATA = (
    "{0} has a row for each claim, stage and metric, {1} one for each method, metric and ranking, also the untuned "
    "ones, and {2} the meaning of each column. The tests are [here](measuring.md#claims-of-the-papers)."
)
PIPELINE = (
    "Each method searched its learning rate and momenta alike, then ran on fresh seeds. All "
    "share HeteRo-Select's pipeline: they send top-k 20% with error feedback and curvature scores, and train with "
    "FedProx. So the baseline, uniform draws with equal weights, is not plain FedAvg. Start with `--strategy random "
    "--set weighting=uniform`. The table has three symbols: at equal bytes, simulated seconds, and rounds; and the "
    "mean lead at equal bytes over workloads (random effects). Heads have the seeds."
)
PLAIN = (
    "Here no side compresses, clips or has a proximal term, and all weigh clients equally, unless the row says so. "
    "Each side searched its learning rate on two seeds. A cell has the leads over uniform draws with equal weights in "
    "points, ±95%, at the bytes and at the seconds in the head. The score is the mean of the last ten evaluations "
    "within the budget. After a side's last round its score stays; – means no round within the budget. At a quarter of "
    "each budget see [rankings.csv](../laboratory/rankings.csv)."
)
LIMITS = (
    "A score is the accuracy of the last evaluation within the budget.",
    "Most methods weigh updates by examples, as their papers say. `random (by examples)` shows what this alone costs "
    "against equal weights.",
    "At equal bytes, methods that train or probe all clients have hardly begun.",
    "FedCG's rounds end before the budget of seconds: its last value counts.",
    "The noise of the search is in no interval. LeNet searched on one seed, logistic regression on two.",
    "Nothing is known here of large models.",
)
OVER_ALL = (
    "Holm's adjustment covers the methods of a workload. Over all comparisons at equal bytes, {0} of {1} would be "
    "ahead. Of the {2} cells ahead or behind in a currency, {3} hang on one seed."
)


def _picture(path: Path) -> str:
    """Picture of the rankings at half the width of a page, so that two stand side by side."""
    spent = path.stem.rpartition("-")[2]
    said = f"lead over uniform draws with equal weights, all methods on HeteRo-Select's pipeline, at equal {spent}"
    return f'<img src="{path.name}" width="410" alt="{said}">'


def _rankings(rankings: Sequence[Ranking], measured: Measured) -> list[str]:
    """Lines on the rankings: how they were made, their symbols, and what they do not show. None without runs."""
    by_currency = {currency: placed(rankings, key, measured) for key, currency in CURRENCIES.items()}
    in_bytes = by_currency["bytes"]
    if not in_bytes:
        return []
    every = [place for own in in_bytes.values() for place in own.values()]
    over_all = sum(
        p < LEVEL and place.lead.mean > 0.0 for p, place in zip(holm([place.p for place in every]), every, strict=True)
    )
    decided = [
        place for places in by_currency.values() for of in places.values() for place in of.values() if place.decided
    ]
    hanging = sum(place.hangs_on > 0 for place in decided)
    limits = (*LIMITS, OVER_ALL.format(over_all, len(every), len(decided), hanging))
    table = symbol_table(rankings, by_currency)
    return [
        wrapped(PIPELINE),
        "",
        markdown(table),
        "",
        *(wrapped(markdown_text(limit), "- ", "  ") for limit in limits),
        "",
    ]


def _plain_rankings(tuned: Sequence[Tuned], measured: Measured) -> list[str]:
    """Lines on the rankings of plain FedAvg whose runs are all measured. None without them."""
    rankings = [
        (one, ranking) for one in tuned if one.pipeline == PLAIN_PIPELINE and (ranking := one.compared(measured))
    ]
    if not rankings:
        return []
    edges = [
        f"{len(edge)} of {len(chosen)} sides in {_task(ranking)}"
        for one, ranking in rankings
        if (chosen := one.chosen(measured))
        and (edge := [name for name, cell in chosen.items() if one.search.on_edge(cell)])
    ]
    told = f"The best rate is at an edge of the grid for {', '.join(edges)}." if edges else ""
    table = plain_table([ranking for _, ranking in rankings], measured)
    return ["## Plain FedAvg", "", wrapped(PLAIN), *([wrapped(told)] if told else []), "", markdown(table), ""]


def plain_table(rankings: Sequence[Ranking], measured: Measured) -> Table:
    """Table of sides by workloads: the leads at the largest budget of bytes and of seconds, best mean lead first."""
    cells = dict[str, dict[str, str]]()
    leads = dict[str, list[float]]()
    heads = []
    for ranking in rankings:
        last = {metric.currency: metric for metric in ranking.metrics if metric.evaluations > 1}
        metrics = [metric for currency, metric in last.items() if currency != "rounds"]
        places = [{place.name: place for place in ranked_methods(ranking, metric, measured)} for metric in metrics]
        for name in dict.fromkeys(name for of in places for name in of if name != ranking.baseline):
            cells.setdefault(name, {})[ranking.name] = " ".join(
                _lead(of[name]) if name in of else ABSENT for of in places
            )
            leads.setdefault(name, []).extend(of[name].lead.mean for of in places if name in of)
        budgets = ", ".join(f"{metric.budget:g} {UNITS[metric.currency]}" for metric in metrics)
        heads.append(Heading(f"{_task(ranking)}, {len(ranking.seeds)} seeds: {budgets}"))
    names = sorted(cells, key=lambda name: -sum(leads[name]) / len(leads[name]))
    rows = [[name, *(cells[name].get(ranking.name, "") for ranking in rankings)] for name in names]
    return Table("leads", "", "", [Heading("side"), *heads], rows)


def _task(ranking: Ranking) -> str:
    return ranking.title.removeprefix("Plain: ")


def _lead(place: RankedMethod) -> str:
    lead, half = round(100 * place.lead.mean, 1) + 0.0, 50 * (place.lead.high - place.lead.low)
    return f"{SYMBOLS[place.word]}{lead:+.1f}±{half:.1f}"


def symbol_table(rankings: Sequence[Ranking], by_currency: Mapping[str, Places]) -> Table:
    """Table of methods by workloads: a symbol for each currency; and each method's pooled lead at equal bytes."""
    over_all = evidence(by_currency["bytes"])
    in_bytes, by_name = by_currency["bytes"], {ranking.name: ranking for ranking in rankings}
    legend = ", ".join(f"{symbol} {word}" for word, symbol in SYMBOLS.items())
    rows = [
        [
            NAMES.get(method, method),
            *("".join(SYMBOLS[of[name][method].word] for of in by_currency.values()) for name in in_bytes),
            _points(over_all[method].lead) if method in over_all else ABSENT,
        ]
        for method in methods_of(in_bytes)
    ]
    heads = [Heading("method"), *(_workload_head(by_name[name], of) for name, of in in_bytes.items())]
    return Table("symbols", "", legend, [*heads, Heading("pooled, points")], rows)


def _workload_head(ranking: Ranking, places: Mapping[str, RankedMethod]) -> Heading:
    return Heading(f"{' '.join(workload(ranking))}, {next(iter(places.values())).lead.n}")


def _points(lead: Estimate) -> str:
    low, mean, high = (round(100.0 * value, 1) + 0.0 for value in (lead.low, lead.mean, lead.high))
    return f"{mean:+} [{low}, {high}]"


def _counts(claims: Sequence[Claim], verdicts: Mapping[str, Standing]) -> str:
    """Sentences that count the standing claims: their verdicts, protocols and models."""
    standing = counted(claims)
    words = {claim.name: verdicts[claim.name].word for claim in standing}
    number = Counter(words.values())
    dearer = [claim.name for claim in standing if words[claim.name] == HOLDS and dearer_text(verdicts[claim.name])]
    protocol = Counter(words[claim.name] for claim in standing if claim.scale == "protocol")
    ran = [claim for claim in standing if words[claim.name] != NOT_RUN]
    logistic = sum(claim.configuration(claim.claimed, 1).run.model == "logistic" for claim in ran)
    replaced = {claim.superseded_by for claim in claims}
    restated = sum(claim.name in replaced for claim in standing)
    favoured = sum(bool(claim.favoured) for claim in standing if words[claim.name] == HOLDS)
    borrowed = sum(_borrows(claim) for claim in standing)
    abstracts = len({claim.paper for claim in standing if claim.source.startswith("abstract")})
    papers = len(papers_of(standing))
    return (
        f"{len(standing)} claims of {papers} papers were stated before their runs, on paired seeds. {number[HOLDS]} "
        f"hold in direction, not in size; {number[DOES_NOT]} do not hold, {number[SMALL]} are within a margin, "
        f"{number[UNDECIDED]} open and {number[NOT_RUN]} not run. Of the {protocol.total()} at a paper's own protocol "
        f"{protocol[HOLDS]} hold, {protocol[DOES_NOT]} do not, {protocol[UNDECIDED]} are open and {protocol[NOT_RUN]} "
        f"not run. All others are smaller. {logistic} of the {len(ran)} that ran use logistic regression, mostly at "
        f"rates that no search chose. {len(dearer)} "
        "that hold in the bytes that their paper counts cost more once downloads and probes count. "
        f"{borrowed} claims of other papers have HeteRo-Select's top-k, FedProx and server momentum on both sides. "
        f"{restated} were restated after results; a pilot had favoured {favoured} that hold. {abstracts} papers were "
        "at hand as abstracts only; – where theirs has no number."
    )


def _borrows(claim: Claim) -> bool:
    """True if a claim of another paper than HeteRo-Select's has its pipeline on both sides."""
    pipeline = {"compressor": "top-k", "solver": "fedprox", "server-optimizer": "momentum"}
    values = [claim.configuration(side, 1).values() for side in claim.sides]
    return "HeteRo-Select" not in claim.paper and all(of[key] == pipeline[key] for of in values for key in pipeline)


def paper_table(claims: Sequence[Claim], verdicts: Mapping[str, Standing]) -> Table:
    """Table with a row for each paper: its main statements, what it published, what came out, and all verdicts."""
    columns = ["paper", "statement", "published", "here: claimed side ahead by", "scale here", "verdicts"]
    rows = []
    for paper in papers_of(counted(claims)):
        own = [claim for claim in counted(claims) if claim.paper == paper]
        main = [claim for claim in own if claim.headline] or own
        by_statement = [[claim for claim in main if claim.sentence == said] for said in _different(main, "sentence")]
        number = Counter(verdicts[claim.name].word for claim in own)
        rows.append(
            [
                paper,
                _numbered(same[0].sentence for same in by_statement),
                _numbered(", ".join(dict.fromkeys(map(published_text, same))) for same in by_statement),
                _numbered(", ".join(result_text(verdicts[claim.name]) for claim in same) for same in by_statement),
                "; ".join(dict.fromkeys(map(_scale, main))),
                ", ".join(f"{shown} {number[word]}" for word, shown in WORDS.items() if number[word]),
            ]
        )
    return Table("papers", "", "", [Heading(name) for name in columns], rows)


def _different(claims: Sequence[Claim], field: str) -> list[str]:
    """Different values of a field, in their order."""
    return list(dict.fromkeys(getattr(claim, field) for claim in claims))


def published_text(claim: Claim) -> str:
    """Published numbers and their source; absent if no number is at hand."""
    if claim.published == NO_NUMBER:
        return ABSENT
    return f"{claim.published} ({claim.source.partition(';')[0]})"


def _numbered(texts: Iterable[str]) -> str:
    """Texts with their numbers; one text if all are the same."""
    every = [text.rstrip(".") for text in texts]
    if len(set(every)) == 1:
        return every[0]
    return "; ".join(f"({number}) {text}" for number, text in enumerate(every, start=1))


def _scale(claim: Claim) -> str:
    config = claim.configuration(claim.claimed, 1)
    data = Path(config.data.data_path).stem if config.data.data == "npz" else short_name(config.data.data)
    return f"{data}, {config.run.model}{' (protocol)' if claim.scale == 'protocol' else ''}"


def result_text(standing: Standing) -> str:
    """Advantages in the metrics that decide, the verdict, and how much more all traffic is where it is shown to be."""
    deciding = standing.verdicts[: standing.deciding]
    if standing.word == NOT_RUN:
        return NOT_RUN
    several = len(deciding) > 1
    text = " and ".join(
        f"{advantage_text(verdict)}{f' ({verdict.pairs.metric.name})' if several else ''}" for verdict in deciding
    )
    word = f"{standing.word}, by less than the margin" if all(verdict.small for verdict in deciding) else standing.word
    dearer = dearer_text(standing)
    return f"{text}: {word}{' as stated' if dearer and word == HOLDS else ''}{dearer}"


def dearer_text(standing: Standing) -> str:
    """How much more all traffic is, where the paper does not count it and it is shown to be more; else empty."""
    return "".join(
        f" ({1.0 - verdict.advantage.mean:.1f} times the bytes with downloads and probes)"
        for verdict in standing.verdicts[standing.deciding :]
        if verdict.pairs.metric.whole == WHOLE_TRAFFIC and verdict.word == DOES_NOT
    )


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


def _stages(claims: Sequence[Claim], verdicts: Mapping[str, Standing]) -> str:
    """Sentences on the second stages, the adjustment, the repetitions, and each verdict that did not come again."""
    standing = counted(claims)
    stated = [claim.second_stage for claim in standing if claim.second_stage]
    unsized = sum(stage.effect is None for stage in stated)
    decided = [
        [verdict for verdict in found.verdicts[: found.deciding] if verdict.word in DECIDED]
        for claim in standing
        if (found := verdicts[claim.name]).word in DECIDED
    ]
    lost = sum(any(verdict.ledger_p >= LEVEL for verdict in found) for found in decided)
    repeated = [(claim, verdicts[claim.name]) for claim in standing if claim.again]
    same = sum(found.word_in("first_stage") == found.word_in(AGAIN) for _, found in repeated)
    sentences = [
        f"{len(stated)} claims have a second stage with fresh seeds, whose number and rule were committed before their "
        f"runs; {unsized} numbers have no power analysis. Adjusted over all papers, {lost} of {len(decided)} decided "
        f"claims would be open. {len(repeated)} were repeated on ten fresh seeds: {same} have the same verdict again."
    ]
    for claim, found in repeated:
        both = zip(found.stages["first_stage"], found.stages[AGAIN], strict=True)
        for first, again in list(both)[: found.deciding]:
            if first.word != again.word:
                sentences.append(
                    f"{claim.name}: {first.word} ({advantage_text(first)}) on the first seeds, {again.word} "
                    f"({advantage_text(again)}) on the fresh ones. {claim.not_again}"
                )
    return " ".join(sentences)


def papers_of(claims: Sequence[Claim]) -> list[str]:
    """Papers of the claims, in their order."""
    return _different(claims, "paper")


def counted(claims: Sequence[Claim]) -> list[Claim]:
    """Claims that are counted: statements of papers that are not superseded."""
    return [claim for claim in claims if not claim.superseded and not claim.ours]


def wrapped(text: str, first: str = "", later: str = "") -> str:
    """Lines of Markdown; a name with hyphens stays on one line."""
    return fill(
        text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
