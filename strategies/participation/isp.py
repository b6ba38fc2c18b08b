"""ISP: an adaptive number of participants, searched for around any selection method.

Skorik, Dorofeev, Molodtsov, Avetisyan, Bylinkin, Medyakov and Beznosikov, "Communication-Efficient Federated Learning
with Adaptive Number of Participants" (no number known). Here are Algorithms 2 (when), 3 (the search) and 4 (the
expected loss), and Eq. 6 (ISP-RI). Every Delta rounds all clients train from the global model; for m = 1, 1 + w, ... N
subsets of m are drawn by the method's own rule and aggregated as the method aggregates, and the first m whose smoothed
mean loss is below the global model's is taken for the next Delta rounds.

Deviations
----------
- Clients train the intermediate round as they would if the method had selected them all, with its own ratios and
  learning rates; where it selects fewer (it draws with replacement), all train as the shared settings say.
- The subsets are drawn among the clients whose updates the intermediate round brought, also where all were to train.
- A subset that was drawn before, with the same weights, is not evaluated again: its loss is the same.
- Candidates keep the global model's BatchNorm statistics.
- The moving average starts at the oldest loss of the window. It takes the global losses that are known: of every round
  with a surrogate set or `client-eval`, else of this round only (where it cannot change which m comes first).
- f weighs clients by their test examples. The global model's is taken over all clients of the intermediate round, a
  candidate's over its own clients only (Algorithm 4, line 18).
- A client's mini-batches are a function of seed and round, so that it trains in the intermediate round as it will in
  the round itself.
- The new m is rounded (to even at halves) before it is kept; the authors' code truncates it.
- ISP-RI takes Eq. 6 literally: the largest smoothed improvement / m^alpha, whether or not it is above 0.
- The authors' warm-up rounds and their rule, which smooths the past losses and not the candidate's, are left out.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.seeds import Purpose, stream
from strategies.participation.intermediate_round import IntermediateRound
from strategies.roster import Ints, RoundInfo, Selection
from strategies.round.replies import Replies
from strategies.run_context import RunContext

LOGGER = logging.getLogger("fedsel")


def moving_average(losses: Sequence[float], weight: float) -> float:
    """Exponential moving average of `losses`, oldest first: a <- weight f + (1 - weight) a, from the first one."""
    average = losses[0]
    for loss in losses[1:]:
        average = weight * loss + (1.0 - weight) * average
    return average


def first_improvement(counts: Sequence[int], improvement: Callable[[int], float]) -> tuple[int | None, list[float]]:
    """The first of `counts` with an improvement above 0 (Algorithm 3), or None, and the improvements up to there."""
    improvements: list[float] = []
    for count in counts:
        improvements.append(improvement(count))
        if improvements[-1] > 0.0:
            return count, improvements
    return None, improvements


def best_relative(counts: Sequence[int], improvements: Sequence[float], exponent: float) -> int | None:
    """ISP-RI: argmax of improvement(m) / m^alpha (Eq. 6), the smallest of equals; None if no improvement is finite."""
    ratios = {m: gain / m**exponent for m, gain in zip(counts, improvements, strict=True) if math.isfinite(gain)}
    return max(ratios, key=lambda m: ratios[m]) if ratios else None


def mixed(found: int, old: int, momentum: float) -> int:
    """Momentum of the number of clients: round(beta m_found + (1 - beta) m_old), at least 1 (Algorithm 3, line 8)."""
    return max(round(momentum * found + (1.0 - momentum) * old), 1)


class ISP:
    """Intelligent Selection of Participants (ISP): the number of clients is searched for every `isp-interval` rounds.

    Attributes
    ----------
    count : number of clients that train until the next search
    """

    def __init__(self, context: RunContext) -> None:
        self._config = context.isp
        self._relative = context.participation.participation == "isp-ri"
        self._seed = context.run.seed
        self.count = self._config.isp_first or context.run.cohort
        self._losses: dict[int, float] = {}
        """Round -> loss of the global model it starts from."""

    def searches(self, round_info: RoundInfo) -> bool:
        """True in the rounds that search (Algorithm 2): the first, and every `isp-interval` rounds from there."""
        return (round_info.number - 1) % self._config.isp_interval == 0

    def search(self, intermediate: IntermediateRound) -> int:
        """Train the intermediate round and search its updates. Returns the number of clients that train next.

        Where the updates are to be aggregated these are all: the round itself is then the intermediate round.
        """
        available = intermediate.roster.ids
        if self._config.isp_intermediate == "aggregate":
            return available.size
        if available.size:
            count = math.ceil(self._config.isp_sample * available.size)
            key = self._seed, Purpose.PARTICIPATION, intermediate.round_info.number
            selection = intermediate.draw(available, count, stream(*key, 0), stream(*key, 1))
            if selection.clients.size < count == available.size:
                selection = Selection(available, np.ones(count))
            self._search(intermediate, intermediate.train(selection))
        return self.count

    def search_aggregated(self, intermediate: IntermediateRound, replies: Replies) -> None:
        """Search the updates of a round that is itself the intermediate round, where they are aggregated."""
        if self._config.isp_intermediate == "aggregate":
            self._search(intermediate, replies)

    def observe(self, server_round: int, loss: float) -> None:
        """Keep the loss of the global model that round `server_round` starts from, unless it is not finite."""
        if math.isfinite(loss):
            self._losses[server_round] = loss
        oldest = server_round - self._config.isp_window
        self._losses = {number: known for number, known in self._losses.items() if number > oldest}

    def _search(self, intermediate: IntermediateRound, replies: Replies) -> None:
        """Algorithm 3, or Eq. 6, over the updates of an intermediate round."""
        config, clients, number = self._config, replies.clients, intermediate.round_info.number
        if not clients.size:
            LOGGER.warning("Round %d: nothing came back of the intermediate round; the cohort stays.", number)
            return
        known_loss = self._losses.get(number)
        global_loss = intermediate.loss(intermediate.parameters, clients) if known_loss is None else known_loss
        self.observe(number, global_loss)
        global_losses = [loss for _, loss in sorted(self._losses.items())]
        subset_losses: dict[tuple[bytes, bytes], float] = {}
        means: list[float] = []

        def improvement(count: int) -> float:
            means.append(self._expected_loss(intermediate, replies, count, subset_losses))
            return global_loss - moving_average([*global_losses, means[-1]], config.isp_smoothing)

        counts = range(1, clients.size + 1, config.isp_step)
        if self._relative:
            improvements = [improvement(count) for count in counts]
            found = best_relative(counts, improvements, config.isp_relative_exponent)
        else:
            found, improvements = first_improvement(counts, improvement)
        if found is not None or config.isp_if_none == "all":
            reached = intermediate.roster.ids.size if found is None else found
            self.count = mixed(reached, self.count, config.isp_momentum)
        intermediate.record |= {
            "global_loss": global_loss,
            "tried": list(counts[: len(means)]),
            "losses": means,
            "improvements": improvements,
            "found": found,
        }

    def _expected_loss(
        self,
        intermediate: IntermediateRound,
        replies: Replies,
        count: int,
        subset_losses: dict[tuple[bytes, bytes], float],
    ) -> float:
        """Mean loss over `isp-draws` subsets of `count` clients (Algorithm 4); `subset_losses` are used again."""
        key = self._seed, Purpose.PARTICIPATION, intermediate.round_info.number
        total = 0.0
        for draw in range(self._config.isp_draws):
            # Streams 0 and 1 drew the clients that train; each subset has two of its own.
            place = 2 + 2 * (count * self._config.isp_draws + draw)
            selection = intermediate.draw(replies.clients, count, stream(*key, place), stream(*key, place + 1))
            step = intermediate.preview_step(selection, replies)
            subset = selection.clients.tobytes(), step.weights.tobytes()
            if subset not in subset_losses:
                subset_losses[subset] = intermediate.loss(step.parameters, selection.clients)
            total += subset_losses[subset]
        return total / self._config.isp_draws

    def state(self) -> dict[str, NDArray[Any]]:
        """The number of clients and the known global losses."""
        rounds: Ints = np.array(sorted(self._losses), np.int64)
        losses = np.array([self._losses[number] for number in rounds.tolist()])
        return {"count": np.array(self.count), "rounds": rounds, "losses": losses}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a state that `state` returned."""
        self.count = int(state["count"])
        self._losses = dict(zip(state["rounds"].tolist(), state["losses"].tolist(), strict=True))
