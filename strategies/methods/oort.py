"""Oort: select clients with high statistical and system utility, and explore the others.

Lai, Zhu, Madhyastha and Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021
(arXiv:2010.06081), Algorithm 1.

A client's statistical utility is U = |B| sqrt(mean of its squared example losses), where B are the examples that it
trains on. Its score is (U capped at a percentile + sqrt(0.1 ln R / L)) (T / t)^(alpha [T < t]), where R is the round, L
the round of the client's last participation, t its duration and T the preferred duration. The method exploits (1 - eps)
m clients, drawn in proportion to their scores from those whose score is at least 0.95 times that of the last one of the
best (1 - eps) m. It explores eps m clients that never took part, drawn in proportion to their speed 1 / t. T increases
when the utility achieved decreases.

Deviations
----------
- The rule is reconstructed: Algorithm 1 is from memory. The selector that the authors published (SymbioticLab/Oort,
  `oort.py`) has another rule, and is not reproduced.
- T starts at the duration of a mean client and moves in steps of it: the paper's step has no published value.
- Losses are those of the received model over all the client's training examples (`Report.RMS_LOSS`). The authors use a
  running average over its first training batches. A client trains on |B| = min(n, local steps x batch size) examples.
- Durations are computed from this round's links and average kept fraction; they are not those of the client's last
  participation.
- A round waits for all clients: there is no over-commitment of 1.3 m. A selected client that sends nothing gets the
  mean utility of those that sent, as stragglers do in the authors' code. If no client sent anything, nothing is learnt,
  and the pacer counts 0.
- eps is 0 in a round without clients to explore; all are exploited then.
- The blacklist has at most 30% of the clients, those with the most selections, and leaves enough clients for a cohort.
  Every round in which a client was selected counts.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Settings, setting
from fedsel_app.messages.scalars import Report
from fedsel_app.wire.rounded_values import bits_an_entry
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.round.budget import round_fraction
from strategies.selection_math.sampling import LARGEST_LOSS, finite, weighted_draws

CUTOFF = 0.95
"""Share c of the marginal score that a client's score must reach to be exploited."""
CLIP = 0.95
"""Quantile at which utilities are capped."""
EXPLORE_DECAY = 0.98
"""Factor on eps after each round."""
EXPLORE_MIN = 0.2
"""Smallest share eps of the cohort that is explored."""
PACER_ROUNDS = 20
"""Number of rounds W between two changes of the preferred duration T."""
BLACKLIST_ROUNDS = 10
"""Number of selections after which a client is left out."""
BLACKLIST_SHARE = 0.3
"""Largest share of the clients that is left out."""


@dataclass(frozen=True)
class OortConfig(Settings):
    """Settings of Oort: exploration, and the penalty of slow clients."""

    explore: float = setting(0.9, "share eps of the cohort that is explored in round 1", low=0.0, high=1.0)
    penalty: float = setting(2.0, "exponent alpha of T / t, which lowers the score of slow clients", low=0.0)


def at_percentile(values: Floats, share: float) -> float:
    """The entry of the sorted `values` (n >= 1,) at index min(int(n share), n - 1)."""
    index = min(int(values.size * share), values.size - 1)
    return float(np.partition(values, index)[index])


def system_factor(durations_s: Floats, preferred_s: float, penalty: float) -> Floats:
    """(T / t)^alpha if t > T, else 1."""
    slow = durations_s > preferred_s
    ratio = np.divide(preferred_s, np.maximum(durations_s, 1e-4), out=np.ones(durations_s.shape), where=slow)
    return np.asarray(ratio**penalty)


def scores(gains: Floats, last: Ints, server_round: int, system: Floats) -> Floats:
    """(gain + sqrt(0.1 ln R / L)) x system factor, float64 (n,); `last` holds L >= 1."""
    return np.asarray((gains + np.sqrt(0.1 * np.log(server_round) / last)) * system)


def exploit(values: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Positions of `count` clients, drawn in proportion to their scores from those that reach the marginal score.

    The marginal score is `CUTOFF` times that of the last one of the `count` best.
    """
    if not count:
        return np.zeros(0, np.int64)
    order: Ints = np.argsort(-values, kind="stable")
    pool = order[values[order] >= CUTOFF * values[order[count - 1]]]
    return np.asarray(pool[weighted_draws(values[pool], count, rng)])


def explore(speeds: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Positions of `count` clients, drawn in proportion to their `speeds` (n,)."""
    fastest_first: Ints = np.argsort(-speeds, kind="stable")
    return fastest_first[weighted_draws(speeds[fastest_first], count, rng)]


def next_pace(achieved: Floats, pace: float) -> float:
    """Number of steps added to T: one more if the first half of `achieved` (2 W,) has a larger sum than the second."""
    before, after = np.split(achieved, 2)
    return pace + float(before.sum() > after.sum())


def blacklist(selections: Ints, most: int) -> NDArray[np.bool_]:
    """Clients selected in more than `BLACKLIST_ROUNDS` rounds: at most `most`, those with the most. bool (n,)."""
    out = np.zeros(selections.size, bool)
    if most > 0:
        used = np.flatnonzero(selections > BLACKLIST_ROUNDS)
        out[used[np.argsort(-selections[used], kind="stable")[:most]]] = True
    return out


@final
class Oort(SelectionStrategy[OortConfig]):
    """Exploits clients by utility and explores others by speed."""

    name = "oort"
    paper = "Lai et al. 2021 (Oort), reconstructed"
    state_fields = ("_utilities", "_last", "_achieved", "_pace")

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._utilities = np.full(context.run.clients, np.nan)
        """Utility of each client; NaN before its first participation."""
        self._last = np.zeros(context.run.clients, np.int64)
        """The round of each client's last participation."""
        self._achieved = np.zeros(0)
        """The utilities achieved in the pacer's window."""
        self._pace = 0.0
        """Number of steps that the pacer has added to T."""

    @classmethod
    def needs(cls, config: OortConfig) -> Needs:
        """The participants' root mean square loss, and every client's link."""
        return Needs(reports=frozenset({Report.RMS_LOSS}), links=True, round_updates=False)

    def durations(self, roster: Roster, round_info: RoundInfo) -> tuple[Floats, float]:
        """Each available client's seconds for a round, float64 (n,), and the preferred seconds T."""
        context, links, ids = self.context, self.context.links, roster.ids
        compression = context.compression
        sent = round_fraction(round_info, context) if compression.sparsifies else 1.0
        bits = bits_an_entry(compression.value_bits) * sent * context.initial.size
        each = (roster.local_steps * roster.step_s + bits / roster.uplink_bits_per_s)[ids]
        mean_steps = float(roster.local_steps[ids].mean())
        mean_s = mean_steps * links.mean_step_s + bits / links.mean_uplink_bits_per_s
        return each, mean_s * (1.0 + self._pace)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """Exploit and explore; a share that lacks clients leaves its places to the other."""
        config, ids = self.config, roster.ids
        durations_s, preferred_s = self.durations(roster, round_info)
        system = system_factor(durations_s, preferred_s, config.penalty)
        most = min(int(BLACKLIST_SHARE * ids.size), ids.size - count)
        usable = ~blacklist(roster.selections[ids], most)
        utilities = self._utilities[ids]
        tried, fresh = np.flatnonzero(usable & ~np.isnan(utilities)), np.flatnonzero(usable & np.isnan(utilities))
        eps = max(config.explore * EXPLORE_DECAY ** (round_info.number - 1), EXPLORE_MIN) if fresh.size else 0.0
        explored = min(count - min(int(count * (1.0 - eps)), tried.size), fresh.size)
        exploited = np.zeros(0, np.int64)
        if tried.size:
            gains = np.minimum(utilities[tried], at_percentile(utilities[tried], CLIP))
            values = scores(gains, self._last[ids][tried], round_info.number, system[tried])
            exploited = tried[exploit(values, count - explored, rng)]
        new = fresh[explore(1.0 / np.maximum(durations_s[fresh], 1e-4), explored, rng)]
        picked = np.sort(np.concatenate([exploited, new]))
        components = {
            "utility": np.nan_to_num(utilities[picked]),
            "duration_s": durations_s[picked],
            "exploited": np.isin(picked, exploited).astype(np.float64),
        }
        return Selection(ids[picked], components=components)

    def update(self, outcome: Outcome) -> None:
        """Renew the utilities of the participants, and let the pacer adjust T."""
        clients, round_info = outcome.clients, outcome.round_info
        achieved = 0.0
        if clients.size:
            losses = np.maximum(finite(outcome.reports[Report.RMS_LOSS]), 0.0)
            trained = np.minimum(self.roster.examples, self.roster.local_steps * self.context.training.batch_size)
            gained = np.minimum(trained[clients] * losses, LARGEST_LOSS)
            self._utilities[clients] = gained
            self._utilities[outcome.failed] = gained.mean()
            self._last[clients] = self._last[outcome.failed] = round_info.number
            achieved = float(gained.sum())
        self._achieved = np.append(self._achieved, achieved)[-2 * PACER_ROUNDS :]
        if round_info.number % PACER_ROUNDS == 0 and self._achieved.size == 2 * PACER_ROUNDS:
            self._pace = next_pace(self._achieved, self._pace)
