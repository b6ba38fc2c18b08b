"""Terraform: in each iteration, the clients whose output layer changed most train again.

Balivada, Gupta, Bhatt and Gupta, "Heterogeneity-Aware Client Selection Methodology For Efficient Federated Learning".
This file has Eqs. 2-3 (magnitudes), Eqs. 4-5 with the inter-quartile range of Sec. 6.2 (the split), and Algorithm 1.

A Terraform round draws clients uniformly; they are the first hard set. Each iteration trains the hard set, aggregates
by examples, sorts the set by update magnitude and splits it; the part with the larger updates is the hard set of the
next iteration. One iteration is one Flower round; the components `round` and `iteration` number them (both from 1).
With `count` = rounds the setting `rounds` counts Terraform rounds: the learning rate's schedule follows them, the model
is evaluated at their ends, and a run takes 1 to `iterations` times as many Flower rounds.

Deviations
----------
- The paper does not give the largest number of iterations T of a round; `iterations` is 5. With `count` = iterations
  every iteration is a round for all settings, unlike in the paper.
- An empty range, or no update at all, ends the round. A client that fails leaves the hard set. An unavailable client is
  left out of the iterations that it misses, and the round ends if fewer than eta clients are available. With `count` =
  rounds, such a round is not evaluated; if it is the last, a Flower round without clients evaluates the model.
- If the cohort has fewer places than the hard set has clients, the hardest are selected. A participation policy sets
  K of Algorithm 1, line 5, the pool that a round's first iteration draws; it needs `count` = rounds.
- Eq. 5 weighs the parts by clients and the variances inside them by examples, as printed. The law of total variance,
  which the paper cites, would need examples for both.
- Splits whose costs differ only by rounding are ties; the smallest index is chosen.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from fedsel_app.config import ConfigError, Settings, SharedSettings, setting, unless
from strategies.base import SelectionStrategy
from strategies.method import MethodContext
from strategies.roster import Floats, Needs, Outcome, Roster, RoundInfo, Selection
from strategies.selection_math.sampling import finite
from strategies.selection_math.similarity import layer_part

TIE = 1e-12
"""Costs count as equal if they differ by less than this share of the squared range of the magnitudes."""


@dataclass(frozen=True)
class TerraformConfig(Settings):
    """Settings of Terraform: the magnitude, the range of the split, and the iterations of a round."""

    iterations: int = setting(5, "largest number of training iterations T in a Terraform round", low=1)
    count: str = setting(
        "iterations",
        "what the setting rounds counts: training iterations, or Terraform rounds of up to iterations training"
        " iterations each",
        choices=("iterations", "rounds"),
        read_by={"iterations": unless(1)},
    )
    min_clients: int = setting(
        4, "size eta of the hard set below which a Terraform round ends", low=1, read_by={"iterations": unless(1)}
    )
    quartiles: str = setting(
        "q1-q3",
        "range of quantiles in which the split index is searched",
        choices=("q1-q3", "0-1", "0-q3", "q1-1", "q3-1"),
        read_by={"iterations": unless(1)},
    )
    magnitude: str = setting(
        "gradient",
        "magnitude by which clients are sorted: the norm of the update of the output layer, of only its biases, or of"
        " only its weights; with secure sums, the training loss, or the norm of the whole update",
        choices=("gradient", "bias", "weights", "loss", "norm"),
        read_by={"iterations": unless(1)},
    )


def split_range(examples: Floats, quartiles: str) -> tuple[int, int]:
    """The split indices [low, high) that `quartiles` allows (Sec. 6.2), for clients sorted by magnitude.

    A split index tau puts the first tau clients into the easy part, so 1 <= tau < n. k_Q is the smallest number of
    clients that together have the share Q of all `examples`, float64 (n,), not all 0.
    """
    running = np.cumsum(examples)
    quartile = {
        name: int(np.searchsorted(running, share * running[-1])) + 1 for name, share in (("q1", 0.25), ("q3", 0.75))
    }
    low, high = quartiles.split("-")
    return quartile.get(low, 1), quartile.get(high, examples.size)


def split_costs(magnitudes: Floats, examples: Floats) -> Floats:
    """Var_intra at tau = 1 ... n - 1 (Eq. 5), float64 (n - 1,), in O(n) by prefix sums.

    `magnitudes` are ascending; `examples`, above 0, are the weights within each part.
    """
    n = magnitudes.size
    # Variances do not depend on the origin. An origin amid the values loses the fewest digits, and equal values become
    # 0.
    centred = magnitudes - magnitudes[n // 2]
    moments = np.cumsum(examples * np.stack([np.ones(n), centred, centred**2]), axis=1)

    def variance(sums: Floats) -> Floats:
        return np.asarray(np.maximum(sums[2] / sums[0] - (sums[1] / sums[0]) ** 2, 0.0))

    easy = np.arange(1, n) / n
    return easy * variance(moments[:, :-1]) + (1.0 - easy) * variance(moments[:, -1:] - moments[:, :-1])


def split_index(magnitudes: Floats, examples: Floats, quartiles: str) -> int | None:
    """tau_split: the cheapest split in the range (Algorithm 1, steps 10-11); None if the range is empty."""
    low, high = split_range(examples, quartiles)
    if low >= high:
        return None
    scale = magnitudes[-1] - magnitudes[0]
    relative = (magnitudes - magnitudes[0]) / (scale if scale > 0 else 1.0)
    costs = split_costs(relative, examples)[low - 1 : high - 1]
    return low + int(np.argmax(costs <= costs.min() + TIE))


@final
class Terraform(SelectionStrategy[TerraformConfig]):
    """Draws a cohort uniformly, and then trains smaller and smaller hard sets of it."""

    name = "terraform"
    paper = "Balivada et al. (Terraform)"
    exact_cohort = False
    needs_whole_cohort = (
        "the clients of an iteration are chosen from those of the iteration before, trained from its model"
    )
    needs_all_selected = "it sizes its hard sets itself"
    without_updates = "'terraform.magnitude' to loss or norm"
    state_fields = ("_round", "_iteration", "_hard")

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        self._round = 0
        self._iteration = 0
        """Iterations of the current Terraform round so far."""
        self._hard = np.zeros(0, np.int64)
        """The next hard set, ascending by magnitude."""

    @classmethod
    def needs(cls, config: TerraformConfig) -> Needs:
        """Biases of the output layer, if the magnitude is theirs or its weights'. Loss and norm need no update."""
        magnitude = config.magnitude
        whole = magnitude in ("loss", "norm")
        return Needs(output_biases=magnitude in ("bias", "weights"), round_updates=not whole, norms=magnitude == "norm")

    @classmethod
    def check_settings(cls, config: TerraformConfig, shared: SharedSettings) -> None:
        """Refuse a participation policy unless `rounds` counts Terraform rounds."""
        if shared.participation.participation != "fixed" and config.count != "rounds" and config.iterations > 1:
            raise ConfigError(
                "Set 'terraform.count' to rounds, or 'participation' to fixed: a policy sets how many clients the "
                "first iteration of a Terraform round draws, so its rounds must be Terraform rounds."
            )

    @classmethod
    def most_iterations(cls, config: TerraformConfig) -> int:
        """T if `rounds` counts Terraform rounds."""
        return config.iterations if config.count == "rounds" else 1

    def own_round(self, roster: Roster) -> tuple[int, int]:
        """The current round and its next iteration; a new round if fewer than eta hard clients are available."""
        if np.isin(self._hard, roster.ids).sum() < self.config.min_clients:
            return self._round + 1, 1
        return self._round, self._iteration + 1

    def select(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Selection:
        """The hard set; `count` clients, drawn uniformly, at the start of a round."""
        ids = roster.ids
        number, iteration = self.own_round(roster)
        clients = self._hard[np.isin(self._hard, ids)][-count:]
        if iteration == 1:
            clients = rng.choice(ids, size=count, replace=False)
        constant = np.ones(clients.size)
        return Selection(
            clients=np.sort(clients), components={"round": number * constant, "iteration": iteration * constant}
        )

    def magnitudes(self, outcome: Outcome) -> Floats:
        """Magnitudes u_k of the aggregated clients, float64 (r,) (Eqs. 2 and 3)."""
        if self.config.magnitude == "loss":
            return finite(outcome.losses)
        if self.config.magnitude == "norm":
            return outcome.norms
        layer = self.context.layers[-1]
        biases = layer.stop - self.context.classes
        start = biases if self.config.magnitude == "bias" else layer.start
        stop = biases if self.config.magnitude == "weights" else layer.stop
        return np.array([layer_part(update, start, stop).norm() for update in outcome.updates])

    def update(self, outcome: Outcome) -> None:
        """Count the iteration, and split off the next hard set or end the round."""
        self._round, self._iteration = self.own_round(self.roster)
        self._hard = np.zeros(0, np.int64)
        if self._iteration < self.config.iterations and outcome.clients.size:
            magnitudes = self.magnitudes(outcome)
            order = np.argsort(magnitudes, kind="stable")
            examples = self.roster.examples[outcome.clients[order]].astype(np.float64)
            index = split_index(magnitudes[order], examples, self.config.quartiles)
            if index is not None and order.size - index >= self.config.min_clients:
                self._hard = outcome.clients[order[index:]]
