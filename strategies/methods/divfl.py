"""DivFL: the clients whose updates represent those of all clients best.

Balakrishnan, Li, Zhou, Himayat, Smith and Bilmes, "Diverse Client Selection for Federated Learning via Submodular
Maximization", ICLR 2022. S minimises G(S) = sum_k min_{i in S} ||g_k - g_i|| (facility location), greedily: the first
pick is the medoid.

Deviations
----------
- g_k is the client's last update as the server received it (compressed, where the run compresses). In the authors' code
  clients also send the gradient at the received model.
- Only participants renew their g (the authors' "no overhead"). The authors ask all clients once at
  t = 0; here the first rounds draw uniformly from the clients that were never selected. The last of these rounds is
  filled up with other clients.
- A client that was selected but never sent a usable update has g = 0.
- The authors' stochastic greedy, which considers a random tenth of the clients in each step, is not implemented.
- S starts from the clients under way, if the server does not wait for its cohort.
- Aggregation is by examples over S, as in the authors' code. The paper weighs a client by the number of clients that it
  represents.
"""

from typing import final

import numpy as np

from fedsel_app.config import RunConfig, Settings
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import NOBODY, Floats, Ints, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import unseen_first
from strategies.selection_math.similarity import among, blocks, euclidean, refreshed_gram


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
class DivFL(SelectionStrategy):
    """Selects clients by greedy facility location over the clients' last updates."""

    name = "divfl"
    paper = "Balakrishnan et al. 2022, ICLR"
    state_fields = ("_gram",)

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._gram = np.zeros((context.run.clients, context.run.clients))
        """Inner products of the clients' last updates."""

    @classmethod
    def needs(cls, config: Settings) -> Needs:
        """Every client's last update."""
        return Needs(updates=True)

    @classmethod
    def uniform_rounds(cls, config: Settings, run: RunConfig) -> int:
        """The first pass over all clients."""
        return -(-run.clients // run.cohort)

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """The representatives, beside the clients under way."""
        ids, compared = roster.ids, roster.compared
        seen = roster.selections[ids] > 0
        if seen.all():
            distances, start = euclidean(among(self._gram, compared)), np.flatnonzero(roster.under_way[compared])
            return Selection(np.sort(compared[facility_location(distances, count, start)]))
        return Selection(ids[unseen_first(seen, count, rng)])

    def update(self, outcome: Outcome) -> None:
        """Compute the inner products of the new updates with all others."""
        self._gram = refreshed_gram(self._gram, self.last_updates, outcome.clients.tolist())
