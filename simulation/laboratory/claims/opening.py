"""Opening of the ledger, which is also the README's: a paragraph on claims and rankings, and a table of rankings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from textwrap import fill

from simulation.laboratory.claims.claim import Claim
from simulation.laboratory.claims.measured import Measured
from simulation.laboratory.claims.ranking import (
    AHEAD,
    BASELINE,
    BEHIND,
    MARGIN,
    OPEN,
    WITHIN,
    RankedMethod,
    Ranking,
    ranked_methods,
)
from simulation.laboratory.claims.verdict import DECIDED, DOES_NOT, HOLDS, NOT_RUN, SMALL, UNDECIDED, Standing
from simulation.report.tables import Heading, Table, markdown_text

WIDTH = 120
"""Characters of a line of Markdown."""
CURRENCIES = {"accuracy_at_traffic_mb": "bytes", "accuracy_at_time_s": "seconds", "accuracy_at_rounds": "rounds"}
"""Metric of a ranking -> what every method may spend the same amount of."""
NAMES = {"random": "random (weighted by examples)"}
"""Names of methods that could be taken for the baseline."""
Orders = Mapping[str, Mapping[str, Sequence[RankedMethod]]]
"""Metric of `CURRENCIES` -> ranking -> places."""


def opening(
    claims: Sequence[Claim], rankings: Sequence[Ranking], verdicts: dict[str, Standing], measured: Measured
) -> str:
    """Opening of the ledger, and the results in the README: Markdown of a paragraph and a table."""
    orders = ordered(rankings, measured)
    said = f"{claims_said(claims, verdicts)} {rankings_said(rankings, orders)}".strip()
    table = overview(orders)
    return f"{wrapped(markdown_text(said))}\n" + (f"\n{table.markdown().rstrip()}\n" if table.rows else "")


def claims_said(claims: Sequence[Claim], verdicts: dict[str, Standing]) -> str:
    """Sentences on the standing claims: their number, models, verdicts and restatements."""
    standing = counted(claims)
    ran = [claim for claim in standing if verdicts[claim.name].word != NOT_RUN]
    by = {word: [claim for claim in ran if verdicts[claim.name].word == word] for word in (*DECIDED, UNDECIDED)}
    downloads = sum(_only_by_downloads(verdicts[claim.name]) for claim in by[DOES_NOT])
    replaced = {claim.superseded_by for claim in claims}
    restated = sum(claim.name in replaced for claim in standing)
    favoured = sum(bool(claim.favoured) for claim in by[HOLDS])
    statements, papers = len({(claim.paper, claim.sentence) for claim in standing}), len(papers_of(standing))
    return (
        f"{len(standing)} tests of {statements} statements from {papers} papers, small, untuned and on paired seeds. "
        f"{len(ran)} ran ({_models(ran)}). {len(by[HOLDS])} hold in direction ({_models(by[HOLDS])}), "
        f"{len(by[DOES_NOT])} do not ({downloads} only because downloads count), {len(by[SMALL])} differ by less than "
        f"a margin, {len(by[UNDECIDED])} open. {restated} were restated after results; pilots had favoured {favoured} "
        "that hold."
    )


def _only_by_downloads(found: Standing) -> bool:
    """True if a claim holds in every measure but all traffic."""
    failed = [verdict.pairs.metric for verdict in found.verdicts[: found.deciding] if verdict.word != HOLDS]
    return len(failed) < found.deciding and all(metric.whole == "traffic_mb" for metric in failed)


def _models(claims: Sequence[Claim]) -> str:
    """Number of claims with each model or small data set."""
    kinds: Counter[str] = Counter()
    for claim in claims:
        config = claim.configuration(claim.claimed, 1)
        kind = "networks on digits" if config.data.data == "digits" else "others"
        kinds["logistic regression" if config.run.model == "logistic" else kind] += 1
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def rankings_said(rankings: Sequence[Ranking], orders: Orders) -> str:
    """Sentences on the rankings at equal bytes and what they leave open; empty without runs."""
    places_of = orders[next(iter(CURRENCIES))]
    every = [place for order in places_of.values() for place in order]
    if not every:
        return ""
    seeds = sorted({place.lead.n for place in every})
    ahead = [(place, name) for name, order in places_of.items() for place in order if place.word == AHEAD]
    start = "`--strategy random --set weighting=uniform`"
    best = [name for name, count in Counter(place.name for place, _ in ahead).items() if 2 * count > len(places_of)]
    if best:
        start = f"a method that is ahead in most workloads: {', '.join(sorted(best))}"
    half_widths = [
        50 * (place.lead.high - place.lead.low) for place in every if place.word == OPEN and place.lead.n == seeds[0]
    ]
    width = f"{median(half_widths or [0]):.0f} points (median, {seeds[0]} seeds)"
    searched = sum(ranking.searched for ranking in rankings)
    tuned = f" ({searched} tuned)" if 0 < searched < len(places_of) else ""
    workloads = f"{len(places_of)} {'tuned ' if searched == len(places_of) else ''}workloads{tuned}"
    runs = [ranking.configuration(ranking.sides[0], 1).run for ranking in rankings]
    shares = sorted({run.clients // run.cohort for run in runs})
    return (
        f"Rankings: {len({place.name for place in every})} methods, {workloads}, {_either(seeds)} seeds, against "
        f"uniform draws with equal weights. Ahead at equal bytes (points): {_gains(ahead, len(places_of))}. "
        f"Start with {start}. "
        f"Unresolved intervals: ±{width}. `full` trains {_either(shares)} times as many clients."
    )


def _either(numbers: Sequence[int]) -> str:
    """Text such as 5, 10 or 20."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last


def overview(orders: Orders) -> Table:
    """Table with a row per currency: the methods ahead of the baseline, those within the margin, and the rest."""
    columns = [
        "at equal",
        f"ahead of {BASELINE}, points",
        WITHIN,
        f"{OPEN} (names: ledger)",
        f"{BEHIND} (names: ledger)",
    ]
    rows = []
    for key, currency in CURRENCIES.items():
        every = [(place, name) for name, order in orders[key].items() for place in order]
        ahead, within, *others = (
            [one for one in every if one[0].word == word] for word in (AHEAD, WITHIN, OPEN, BEHIND)
        )
        if every:
            counts = (f"{len(found)} of {len(every)} comparisons{_below_margin(found)}" for found in others)
            workloads = len(orders[key])
            rows.append([currency, _gains(ahead, workloads), _by_number(within, workloads), *counts])
    return Table("overview", "", "", [Heading(name) for name in columns], rows)


def ordered(rankings: Sequence[Ranking], measured: Measured) -> Orders:
    """Places of the methods in every ranking that was run, without the variants."""
    return {
        key: {
            ranking.name: [place for place in order if place.name in _methods(ranking)]
            for ranking in rankings
            for metric in ranking.metrics
            if metric.key == key and (order := ranked_methods(ranking, metric, measured))
        }
        for key in CURRENCIES
    }


def _methods(ranking: Ranking) -> set[str]:
    """Names of the sides that are methods, not variants of one."""
    return {side.name for side in ranking.sides if side.name == side.strategy}


def _gains(found: Sequence[tuple[RankedMethod, str]], workloads: int) -> str:
    texts = []
    for name in dict.fromkeys(place.name for place, _ in found):
        own = [(place, ranking) for place, ranking in found if place.name == name]
        gains = sorted(100 * place.lead.mean for place, _ in own)
        shown = dict.fromkeys(f"{gain:+.1f}" for gain in (gains[0], gains[-1]))
        texts.append(f"{name} {' to '.join(shown)} in {len(gains)} of {workloads} workloads{_below_margin(own)}")
    return "; ".join(texts) or "none"


def _below_margin(found: Sequence[tuple[RankedMethod, str]]) -> str:
    """Text on how many of the leads are shown to be smaller than the margin; empty without one."""
    small = sum(place.small for place, _ in found)
    number = "" if small == len(found) else f"{small} "
    return f" ({number}shown below {100 * MARGIN:g})" if small else ""


def _by_number(found: Sequence[tuple[RankedMethod, str]], workloads: int) -> str:
    """Names of methods by the number of workloads in which they were found, most first."""
    counts = Counter(NAMES.get(place.name, place.name) for place, _ in found)
    texts = []
    for number in sorted(set(counts.values()), reverse=True):
        names = sorted(name for name, count in counts.items() if count == number)
        texts.append(f"in {number} of {workloads} workloads: {', '.join(names)}")
    return "; ".join(texts) or "none"


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
