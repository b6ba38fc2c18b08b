"""DivFL: the clients whose updates represent those of all clients best.

Balakrishnan, Li, Zhou, Himayat, Smith and Bilmes, "Diverse Client Selection for Federated Learning via Submodular
Maximization", ICLR 2022. S minimises G(S) = sum_k min_{i in S} ||g_k - g_i|| (facility location), greedily: the first
pick is the medoid.

Deviations
----------
- g_k is the client's last update as the server received it (compressed, where the run compresses). In the authors' code
  clients also send the gradient at the received model.
- `gradients` = stale (the authors' "no overhead"): only participants renew their g. The authors ask all clients once at
  t = 0; here the first rounds draw uniformly from the clients that were never selected. The last of these rounds is
  filled up with other clients.
- `gradients` = ideal: every available client trains and uploads in every round, and only the m selected updates are
  aggregated. The selection precedes the updates of the round, so it uses updates that are one round old; the paper's
  are of the same round.
- A client that was selected but never sent a usable update has g = 0.
- The authors' stochastic greedy, which considers a random tenth of the clients in each step, is not implemented.
- S starts from the clients under way, if the server does not wait for its cohort.
- Aggregation is by examples over S, as in the authors' code. The paper weighs a client by the number of clients that it
  represents.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from fedsel_app.config import ConfigError, RunConfig, Settings, SharedSettings, setting
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import NOBODY, Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import unseen_first
from strategies.selection_math.similarity import among, blocks, euclidean, refreshed_gram


@dataclass(frozen=True)
class DivFLConfig(Settings):
    """Settings of DivFL: the updates that are compared."""

    gradients: str = setting(
        "stale",
        "clients whose updates are renewed in a round: its participants, or all clients, which then all train",
        choices=("stale", "ideal"),
    )


def facility_location(distances: Floats, count: int, start: Ints = NOBODY) -> Ints:
    """Greedy minimisation of G(S) over n clients, in the order of picking; int64 (count,). `start` is in S already.

    Each step adds the client with the smallest G(S + j); among equals, the one with the lowest id. `distances` (n, n)
    are symmetric.
    """
    size = len(distances)
    nearest = distances[start].min(axis=0, initial=np.inf)
    picked: list[int] = []
    for _ in range(min(count, size - start.size)):
        options = np.setdiff1d(np.arange(size), [*start, *picked])
        costs = [np.minimum(nearest, distances[options[rows]]).sum(axis=1) for rows in blocks(options.size, size)]
        picked.append(int(options[np.concatenate(costs).argmin()]))
        nearest = np.minimum(nearest, distances[picked[-1]])
    return np.array(picked, np.int64)


@final
class DivFL(SelectionStrategy[DivFLConfig]):
    """Selects clients by greedy facility location over the clients' last updates."""

    name = "divfl"
    paper = "Balakrishnan et al. 2022, ICLR"
    exact_cohort = False
    state_fields = ("_gram",)

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._gram = np.zeros((context.run.clients, context.run.clients))
        """Inner products of the clients' last updates."""

    @classmethod
    def needs(cls, config: DivFLConfig) -> Needs:
        """Every client's last update."""
        return Needs(updates=True)

    @classmethod
    def uniform_rounds(cls, config: DivFLConfig, run: RunConfig) -> int:
        """The first pass over all clients."""
        return -(-run.clients // run.cohort)

    @classmethod
    def check_settings(cls, config: DivFLConfig, shared: SharedSettings) -> None:
        """Refuse with ideal gradients compression, because most updates are not aggregated, and a server that takes the
        first replies, because these need not be those of the representatives.
        """
        if config.gradients != "ideal":
            return
        if shared.replies.over_selection or shared.waiting.waiting != "synchronous":
            raise ConfigError(
                "Set 'over-selection' to 0 and 'waiting' to synchronous: with the 'divfl.gradients' ideal all clients"
                " train, and the first replies need not be those of the representatives."
            )
        if not shared.compression.lossless:
            raise ConfigError(
                "Set 'compressor' to none and 'value-bits' to 32: the 'divfl.gradients' ideal discards the updates of"
                " most clients, and error feedback would count them as delivered."
            )

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """The representatives, beside the clients under way. With ideal gradients all clients train, and only the
        representatives have weight.
        """
        ids, compared = roster.ids, roster.compared
        seen = roster.selections[ids] > 0
        if seen.all():
            distances, start = euclidean(among(self._gram, compared)), np.flatnonzero(roster.under_way[compared])
            chosen = np.sort(compared[facility_location(distances, count, start)])
        else:
            chosen = ids[unseen_first(seen, count, rng)]
        if self.config.gradients == "stale":
            return Selection(chosen)
        return Selection(ids, weights=np.where(np.isin(ids, chosen), roster.examples[ids], 0.0))

    def update(self, outcome: Outcome) -> None:
        """Compute the inner products of the new updates with all others."""
        self._gram = refreshed_gram(self._gram, self.last_updates, outcome.clients.tolist())
