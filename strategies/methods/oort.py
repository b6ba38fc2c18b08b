"""Oort: select clients with high statistical and system utility, and explore the others.

Lai, Zhu, Madhyastha and Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021
(arXiv:2010.06081), Algorithm 1 (`rule` = paper), and the selector that its authors published (SymbioticLab/Oort,
`oort.py`; `rule` = official).

A client's statistical utility is U = |B| sqrt(mean of its squared example losses), where B are the examples that it
trains on. Both rules have score = (U capped at a percentile + sqrt(0.1 ln R / L)) (T / t)^(alpha [T < t]), where R is
the round, L the round of the client's last participation, t its duration and T the preferred duration. They exploit (1
- eps) m clients, drawn in proportion to their scores from those whose score is at least `cutoff` times the marginal
score. They explore eps m clients that never took part.

==================  ================================================  ==============================================
                    paper                                             official
==================  ================================================  ==============================================
U                   unchanged                                         scaled to [0, 1] together with untried clients,
                                                                      whose U is |B|
marginal score      of the last client to be exploited                of the first client not to be exploited
explored by         speed, 1 / t                                      |B| (T / t)^alpha, the 5 (explored) best
T                   seconds; increases when the utility achieved      percentile of durations; increases when that
                    decreases                                         is steady, decreases when it changes fivefold
unfilled places     exploited                                         drawn uniformly, and so is all of round 1
==================  ================================================  ==============================================

Deviations
----------
- The paper rule is reconstructed: Algorithm 1 is from memory, and T moves in steps of `pacer-step-s`, which has no
  published value.
- Losses are those of the received model over all the client's training examples (`Report.RMS_LOSS`). The authors use a
  running average over its first training batches. A client trains on |B| = min(n, local steps x batch size) examples.
- Durations are computed from this round's links and average kept fraction; they are not those of the client's last
  participation. The official percentile is over all clients with a known duration, available or not.
- A round waits for all clients: there is no over-commitment of 1.3 m. A selected client that sends nothing gets the
  mean utility of those that sent, as stragglers do in the authors' code, and the official pacer's mean over the
  exploited clients includes it. If no client sent anything, nothing is learnt, and the pacer counts 0.
- R is the number of the round in both rules. (The authors' selector is called from round 2 on and counts that as 1.)
- eps is 0 in a round without clients to explore. (In the authors' code it is then 0 in all later rounds.)
- Under both rules the blacklist has at most 30% of the clients, those with the most selections, and
  leaves enough clients for a cohort. Every round in which a client was selected counts.
- An index beyond the end of the scores, which the authors' code can read, is clamped.
"""

from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import RunConfig, Settings, setting
from fedsel_app.messages.scalars import Report
from fedsel_app.wire.rounded_values import bits_an_entry
from strategies.base import SelectionStrategy
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.round.budget import round_fraction
from strategies.run_context import RunContext
from strategies.selection_math.sampling import LARGEST_LOSS, finite, weighted_draws

PUBLISHED: dict[str, dict[str, Any]] = {
    "paper": {"cutoff": 0.95, "clip": 0.95},
    "official": {"cutoff": 0.7, "clip": 0.98},
}
"""Published values of the settings that differ between the rules. They replace a setting of 0."""
EXPLORE_DECAY = {"paper": 0.98, "official": 0.95}
"""Factor on eps after each round."""
EXPLORE_MIN = 0.2
"""Smallest share eps of the cohort that is explored."""
PACER_DELTA = 5.0
"""Percentile points by which T moves under the official rule."""
SAMPLE_WINDOW = 5.0
"""Size of the pool that the official rule's exploration draws from, in multiples of the clients drawn."""
BLACKLIST_ROUNDS = {"paper": 10, "official": -1}
"""Number of selections after which a client is left out; -1 leaves out none."""
BLACKLIST_SHARE = 0.3
"""Largest share of the clients that is left out."""


@dataclass(frozen=True)
class OortConfig(Settings):
    """Settings of Oort: the rule and its constants. 0 stands for the rule's value in `PUBLISHED`."""

    rule: str = setting(
        "paper",
        "selection rule: Algorithm 1, or the selector that the authors published",
        choices=("paper", "official"),
        variants=("paper", "official"),
    )
    explore: float = setting(0.9, "share eps of the cohort that is explored in round 1", low=0.0, high=1.0)
    cutoff: float = setting(
        0.0,
        "share c of the marginal score that a client's score must reach to be exploited; 0 takes 0.95 (paper) or 0.7"
        " (official)",
        low=0.0,
        high=1.0,
    )
    clip: float = setting(
        0.0, "quantile at which utilities are capped; 0 takes 0.95 (paper) or 0.98 (official)", low=0.0, high=1.0
    )
    penalty: float = setting(2.0, "exponent alpha of T / t, which lowers the score of slow clients", low=0.0)
    pacer_rounds: int = setting(20, "number of rounds W between two changes of the preferred duration T", low=1)
    pacer_step_s: float = setting(
        0.0,
        "paper: first T, and its increment, in seconds; 0 takes the duration of a mean client",
        low=0.0,
        read_by={"rule": ("paper",)},
    )
    pacer_percentile: float = setting(
        10.0,
        "official: percentile of the durations at which T starts",
        above=0.0,
        high=100.0,
        read_by={"rule": ("official",)},
    )

    def with_published(self) -> Self:
        """Settings with the rule's published values instead of 0."""
        published = PUBLISHED[self.rule].items()
        return replace(self, **{name: value for name, value in published if getattr(self, name) == 0})


def at_percentile(values: Floats, share: float) -> float:
    """The entry of the sorted `values` (n >= 1,) at index min(int(n share), n - 1)."""
    index = min(int(values.size * share), values.size - 1)
    return float(np.partition(values, index)[index])


def system_factor(durations_s: Floats, preferred_s: float, penalty: float) -> Floats:
    """(T / t)^alpha if t > T, else 1."""
    slow = durations_s > preferred_s
    ratio = np.divide(preferred_s, np.maximum(durations_s, 1e-4), out=np.ones(durations_s.shape), where=slow)
    return np.asarray(ratio**penalty)


def scaled(utilities: Floats, clip: float) -> Floats:
    """Official step 4, float64 (n,): (min(U, cap) - lo) / range over all arms with U > 0, lo = 0.999 min U.

    NaN for the other arms, which get no score.
    """
    positive = utilities[utilities > 0]
    if not positive.size:
        return np.full(utilities.shape, np.nan)
    low = 0.999 * positive.min()
    span = max(positive.max() - low, 1e-4)
    capped = np.minimum(utilities, at_percentile(positive, clip))
    return np.where(utilities > 0, (capped - low) / span, np.nan)


def scores(gains: Floats, last: Ints, server_round: int, system: Floats) -> Floats:
    """(gain + sqrt(0.1 ln R / L)) x system factor, float64 (n,); `last` holds L >= 1."""
    return np.asarray((gains + np.sqrt(0.1 * np.log(server_round) / last)) * system)


def admitted(values: Floats, marginal: int, cutoff: float) -> Ints:
    """Positions of scores (n >= 1,) of at least `cutoff` times the score at place `marginal`, best first.

    Place 0 is the best score; a place beyond the end is clamped. Ties go to the earlier position.
    """
    order: Ints = np.argsort(-values, kind="stable")
    threshold = cutoff * values[order[min(marginal, order.size - 1)]]
    return np.asarray(order[values[order] >= threshold])


def exploit(values: Floats, count: int, marginal: int, cutoff: float, rng: np.random.Generator) -> Ints:
    """Positions of `count` clients, drawn in proportion to their scores from those `admitted`."""
    if not count:
        return np.zeros(0, np.int64)
    pool = admitted(values, marginal, cutoff)
    return pool[weighted_draws(values[pool], count, rng)]


def explore(weights: Floats, count: int, window: float, rng: np.random.Generator) -> Ints:
    """Positions of `count` clients, drawn in proportion to `weights` from the int(window x count) largest."""
    best: Ints = np.argsort(-weights, kind="stable")[: int(window * count)]
    return best[weighted_draws(weights[best], count, rng)]


def paper_pace(achieved: Floats, pace: float) -> float:
    """Number of steps added to T: one more if the first half of `achieved` (2 W,) has a larger sum than the second."""
    before, after = np.split(achieved, 2)
    return pace + float(before.sum() > after.sum())


def official_pace(achieved: Floats, pace: float, delta: float) -> float:
    """T's percentile: up if both halves of `achieved` (2 W,) have similar sums, down if they differ fivefold."""
    before, after = (float(half.sum()) for half in np.split(achieved, 2))
    change = abs(after - before)
    if change <= 0.1 * before:
        return min(100.0, pace + delta)
    return max(delta, pace - delta) if change >= 5.0 * before else pace


def blacklist(selections: Ints, rounds: int, most: int) -> NDArray[np.bool_]:
    """Clients selected in more than `rounds` rounds: at most `most`, those with the most selections. bool (n,)."""
    out = np.zeros(selections.size, bool)
    if rounds >= 0 and most > 0:
        used = np.flatnonzero(selections > rounds)
        out[used[np.argsort(-selections[used], kind="stable")[:most]]] = True
    return out


@final
class Oort(SelectionStrategy[OortConfig]):
    """Exploits clients by utility and explores others by speed."""

    name = "oort"
    paper = "Lai et al. 2021 (Oort; paper rule reconstructed, or the authors' selector)"
    state_fields = ("_utilities", "_last", "_achieved", "_pace")

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._constants = self.config.with_published()
        self._official = self.config.rule == "official"
        self._utilities = np.full(context.run.clients, np.nan)
        """Utility of each client; NaN before its first participation."""
        self._last = np.zeros(context.run.clients, np.int64)
        """The round of each client's last participation."""
        self._achieved = np.zeros(0)
        """The utilities achieved in the pacer's window."""
        self._pace = self.config.pacer_percentile if self._official else 0.0
        """State of the pacer: the percentile of T, or its number of steps."""

    @classmethod
    def uniform_rounds(cls, config: OortConfig, run: RunConfig) -> int:
        """Round 1 under the official rule."""
        return int(config.rule == "official")

    @classmethod
    def needs(cls, config: OortConfig) -> Needs:
        """The participants' root mean square loss, and every client's link."""
        return Needs(reports=frozenset({Report.RMS_LOSS}), links=True, round_updates=False)

    def durations(self, roster: Roster, round_info: RoundInfo) -> tuple[Floats, float]:
        """Each available client's seconds for a round, float64 (n,), and the preferred seconds T."""
        context, links, ids = self.context, self.context.links, roster.ids
        compression = context.compression
        sent = round_fraction(round_info, context.budget) if compression.sparsifies else 1.0
        bits = bits_an_entry(compression.value_bits) * sent * context.initial.size
        registered = roster.local_steps * roster.step_s + bits / roster.uplink_bits_per_s
        each = registered[ids]
        if self._official:
            known = registered[(roster.local_steps > 0) & np.isfinite(registered)]
            return each, np.inf if self._pace >= 100.0 else at_percentile(known, self._pace / 100.0)
        mean_steps = float(roster.local_steps[ids].mean())
        step_s = self.config.pacer_step_s or mean_steps * links.mean_step_s + bits / links.mean_uplink_bits_per_s
        return each, step_s * (1.0 + self._pace)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Exploit, explore, and fill up the cohort uniformly."""
        config, ids = self._constants, roster.ids
        durations_s, preferred_s = self.durations(roster, round_info)
        system = system_factor(durations_s, preferred_s, config.penalty)
        most = min(int(BLACKLIST_SHARE * ids.size), ids.size - count)
        usable = ~blacklist(roster.selections[ids], BLACKLIST_ROUNDS[config.rule], most)
        utilities, trained = self._utilities[ids], _trained(roster, self.context)[ids]
        tried = ~np.isnan(utilities)
        gains = np.full(ids.size, np.nan)
        if self._official:
            gains[usable] = scaled(np.where(tried, utilities, trained)[usable], config.clip)
        elif (usable & tried).any():
            gains = np.minimum(utilities, at_percentile(utilities[usable & tried], config.clip))
        scored = np.flatnonzero(usable & tried & ~np.isnan(gains))
        values = scores(gains[scored], self._last[ids][scored], round_info.number, system[scored])
        fresh = np.flatnonzero(usable & ~tried)
        eps = max(config.explore * EXPLORE_DECAY[config.rule] ** (round_info.number - 1), EXPLORE_MIN)
        exploited = min(int(count * (1.0 - eps)) if fresh.size else count, scored.size)
        explored = min(count - exploited, fresh.size)
        if self._official:
            explored *= int(tried.any())
            marginal, window, weights = exploited, SAMPLE_WINDOW, trained * system
        else:
            exploited = min(count - explored, scored.size)
            marginal, window, weights = exploited - 1, float(ids.size), 1.0 / np.maximum(durations_s, 1e-4)
        known = scored[exploit(values, exploited, marginal, config.cutoff, rng)]
        new = fresh[explore(weights[fresh], explored, window, rng)]
        usable[known] = usable[new] = False
        rest = np.flatnonzero(usable)
        missing = count - known.size - new.size
        picked = np.sort(np.concatenate([known, new, rng.choice(rest, size=missing, replace=False)]))
        components = {
            "utility": np.nan_to_num(utilities[picked]),
            "duration_s": durations_s[picked],
            "exploited": np.isin(picked, known).astype(np.float64),
        }
        return Selection(ids[picked], components=components)

    def update(self, outcome: Outcome) -> None:
        """Renew the utilities of the participants, and let the pacer adjust T."""
        clients, round_info, config = outcome.clients, outcome.round_info, self._constants
        achieved = 0.0
        if clients.size:
            losses = np.maximum(finite(outcome.reports[Report.RMS_LOSS]), 0.0)
            gained = np.minimum(_trained(self.roster, self.context)[clients] * losses, LARGEST_LOSS)
            self._utilities[clients] = gained
            self._utilities[outcome.failed] = gained.mean()
            self._last[clients] = self._last[outcome.failed] = round_info.number
            achieved = self._exploited_mean(outcome.selection) if self._official else float(gained.sum())
        self._achieved = np.append(self._achieved, achieved)[-2 * config.pacer_rounds :]
        if round_info.number % config.pacer_rounds or self._achieved.size < 2 * config.pacer_rounds:
            return
        if self._official:
            self._pace = official_pace(self._achieved, self._pace, PACER_DELTA)
        else:
            self._pace = paper_pace(self._achieved, self._pace)

    def _exploited_mean(self, selection: Selection) -> float:
        """Sum of the utilities of the exploited clients / (their number + 1e-4), as in the authors' code."""
        exploited = selection.clients[selection.components.get("exploited", np.zeros(selection.clients.size)) > 0]
        return float(self._utilities[exploited].sum() / (exploited.size + 1e-4))


def _trained(roster: Roster, context: RunContext) -> Floats:
    """|B_k|, float64 (K,): the examples that a client trains on in a round."""
    return np.minimum(roster.examples, roster.local_steps * context.training.batch_size).astype(np.float64)
