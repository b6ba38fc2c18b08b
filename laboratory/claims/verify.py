"""Verification (`claims verify`): seeds of claims are run anew, and stand beside the committed rows.

The verdict of a few seeds is that of these seeds alone: it is not adjusted for the other claims of the paper. So the
committed rows are judged on the same seeds, in the same way.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError, Value
from laboratory.claims.claim import Claim, Stage
from laboratory.claims.ledger import advantage_text
from laboratory.claims.measured import SHIPPED, Measured, read_measured
from laboratory.claims.runs import FILE, run_claims
from laboratory.claims.verdict import NOT_RUN, Verdict, decide
from simulation.workbench.report.tables import ABSENT
from simulation.workbench.terminal import whole_table


@dataclass(frozen=True)
class Verified:
    """A claim in one of its metrics.

    Attributes
    ----------
    stated : the committed verdict, from all seeds and adjusted within the paper
    before, now : verdicts on the verified seeds alone, from the committed rows and from the new ones
    runs, equal : number of runs, and of those whose value is the same in all digits
    failed : number of runs that failed, so that there is nothing to compare
    largest : largest difference between a committed value and the new one; None if a run reached its target only once,
        NaN if there are no two values
    """

    claim: Claim
    metric: str
    stated: Verdict
    before: Verdict
    now: Verdict
    runs: int
    equal: int
    failed: int
    largest: float | None

    @property
    def again(self) -> bool:
        """True if the same seeds gave the same verdict."""
        return self.now.word == self.before.word


def verified_stage(claim: Claim, measured: Measured, most: int | None) -> Claim:
    """`claim` with only the first `most` seeds of the stage that decided it (None: all), to be judged on its own.

    Raises ConfigError if the claim was not run.
    """
    standing = decide([claim], measured)[claim.name]
    if standing.word == NOT_RUN:
        raise ConfigError(f"Run {claim.name} with `python -m laboratory claims run`: it has no verdict to verify.")
    seeds = claim.stages[standing.stage].range
    stage = Stage(min(most or len(seeds), len(seeds)), seeds[0])
    return replace(claim, first_stage=stage, second_stage=None, again=None)


def verify(
    claims: Sequence[Claim], out: Path, place: Mapping[str, Value], most: int | None, jobs: int, console: Console
) -> tuple[list[Verified], dict[str, str]]:
    """Run the seeds of `claims` anew in the folder `out`. Returns what came out, and failed run -> reason.

    `most`, `place` and the errors are those of `verified_stage` and `run_claims`.
    """
    shipped = read_measured(SHIPPED)
    stated = decide(Claim.load(), shipped)
    few = [verified_stage(claim, shipped, most) for claim in claims]
    failures = run_claims(few, out, place, jobs, float("inf"), console)
    found, found_again = read_measured(out / FILE), []
    for claim in few:
        before, now = (decide([claim], measured)[claim.name].verdicts for measured in (shipped, found))
        for index, metric in enumerate(claim.metrics[: len(claim.rule.metrics)]):
            runs = [
                tuple(measured.values(claim, side, seed) for measured in (shipped, found))
                for side in claim.sides
                for seed in claim.seeds
            ]
            values = [tuple((row or {}).get(metric.column) for row in both) for both in runs if None not in both]
            known = [abs(one - other) for one, other in values if one is not None and other is not None]
            one_sided = any((one is None) != (other is None) for one, other in values)
            largest = None if one_sided else max(known, default=math.nan)
            counts = len(runs), sum(one == other for one, other in values), sum(now is None for _, now in runs)
            verdict = stated[claim.name].verdicts[index]
            found_again.append(Verified(claim, metric.name, verdict, before[index], now[index], *counts, largest))
    return found_again, failures


def verified_table(verified: Sequence[Verified]) -> Table:
    """Table of verified claims: the committed verdict, and those of both sets of rows on the same seeds."""
    columns = "claim", "metric", "seeds", "committed verdict", "these seeds, committed", "these seeds, now", "again"
    table = whole_table(*columns, numbers=("equal values", "largest difference"), fold=False)
    for one in verified:
        seeds = one.claim.seeds
        words = [f"{verdict.word}, {advantage_text(verdict)}" for verdict in (one.stated, one.before, one.now)]
        if one.failed:
            words[-1] = f"not verified: {one.failed} of {one.runs} runs failed"
        largest = "a target was missed" if one.largest is None else f"{one.largest:.3g}".replace("nan", ABSENT)
        again = ABSENT if one.failed else "yes" if one.again else "NO"
        table.add_row(
            *(one.claim.name, one.metric, f"{seeds[0]} to {seeds[-1]}", *words, again),
            *(f"{one.equal} of {one.runs}", largest),
        )
    return table
