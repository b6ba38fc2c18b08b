"""ISP: how many clients train is searched for, around any selection method.

Skorik, Dorofeev, Molodtsov, Avetisyan, Bylinkin, Medyakov and Beznosikov, "Communication-Efficient Federated Learning
with Adaptive Number of Participants" (no number known). Here are Algorithms 2 (when), 3 (the search) and 4 (the
expected loss), and Eq. 6 (ISP-RI). Every Delta rounds all clients train from the global model; for m = 1, 1 + w, ... N
subsets of m are drawn by the method's own rule and aggregated as the method aggregates, and the first m whose smoothed
mean loss is below the global model's is taken for the next Delta rounds.

Deviations
----------
- Clients train the intermediate round as they would if the method had selected them all, with its own ratios and
  learning rates; where it selects fewer (it draws with replacement), all train as the shared settings say.
- The drawn subsets are among those that came back from the intermediate round, also where all clients were asked.
- A subset that was drawn before, with the same weights, is not evaluated again: its loss is the same.
- Candidates keep the global model's BatchNorm statistics.
- The moving average starts at the oldest loss of the window. It takes the global losses that are known: of every round
  with a surrogate set or `client-eval`, else of this round only (where it cannot change which m comes first).
- f weighs clients by their test examples. The global model's is taken over all that came back, a candidate's over its
  own clients only (Algorithm 4, line 18).
- A client's mini-batches are a function of seed and round, so that it trains in the intermediate round as it will in
  the round itself.
- The new m is rounded (to even at halves) before it is remembered; the authors' code truncates it.
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
    """The exponential moving average of `losses`, oldest first: a <- weight f + (1 - weight) a, from the first one."""
    average = losses[0]
    for loss in losses[1:]:
        average = weight * loss + (1.0 - weight) * average
    return average


def first_improvement(counts: Sequence[int], improvement: Callable[[int], float]) -> tuple[int | None, list[float]]:
    """The first of `counts` with an improvement above 0 (Algorithm 3), None if none has; and those that were tried."""
    tried: list[float] = []
    for count in counts:
        tried.append(improvement(count))
        if tried[-1] > 0.0:
            return count, tried
    return None, tried


def best_relative(counts: Sequence[int], improvements: Sequence[float], exponent: float) -> int | None:
    """argmax of improvement(m) / m^alpha (Eq. 6), the smallest m of equals; None if no improvement is a number."""
    ratios = {m: gain / m**exponent for m, gain in zip(counts, improvements, strict=True) if math.isfinite(gain)}
    return max(ratios, key=lambda m: ratios[m]) if ratios else None


def mixed(found: int, old: int, momentum: float) -> int:
    """round(beta m_found + (1 - beta) m_old), at least 1 (Algorithm 3, line 8)."""
    return max(round(momentum * found + (1.0 - momentum) * old), 1)


class ISP:
    """The number of clients, searched for every `isp-interval` rounds."""

    def __init__(self, context: RunContext) -> None:
        self._config = context.isp
        self._relative = context.participation.participation == "isp-ri"
        self._seed = context.run.seed
        self._count = self._config.isp_first or context.run.cohort
        self._losses: dict[int, float] = {}
        """Round -> loss of the global model it starts from."""

    def due(self, round_info: RoundInfo) -> bool:
        """Whether this round searches (Algorithm 2): the first, and every `isp-interval` rounds from there."""
        return (round_info.number - 1) % self._config.isp_interval == 0

    def count(self, trial: IntermediateRound) -> int:
        """How many train, as far as is known before a search."""
        if trial.context.surrogate is not None:
            self.observe(trial.round_info.number, trial.loss(trial.parameters, trial.roster.ids))
        everybody = self._config.isp_intermediate == "aggregate" and self.due(trial.round_info)
        return trial.roster.ids.size if everybody else self._count

    def settle(self, trial: IntermediateRound) -> int:
        """How many train: after the search where one is due and its updates are discarded."""
        available = trial.roster.ids
        if self._config.isp_intermediate == "aggregate" and self.due(trial.round_info):
            return available.size
        if not self.due(trial.round_info) or not available.size:
            return self._count
        asked = math.ceil(self._config.isp_sample * available.size)
        key = self._seed, Purpose.PARTICIPATION, trial.round_info.number
        selection = trial.draw(available, asked, stream(*key, 0), stream(*key, 1))
        if selection.clients.size < asked == available.size:
            selection = Selection(available, np.ones(asked))
        self._search(trial, trial.train(selection))
        return self._count

    def update(self, trial: IntermediateRound, replies: Replies) -> None:
        """Search the updates of a round in which all trained, where they are aggregated as well."""
        if self._config.isp_intermediate == "aggregate" and self.due(trial.round_info):
            self._search(trial, replies)

    def observe(self, server_round: int, loss: float) -> None:
        """The global model that round `server_round` starts from has this loss; inf: unknown."""
        if math.isfinite(loss):
            self._losses[server_round] = loss
        oldest = server_round - self._config.isp_window
        self._losses = {number: known for number, known in self._losses.items() if number > oldest}

    def _search(self, trial: IntermediateRound, replies: Replies) -> None:
        """Algorithm 3, or Eq. 6, over the updates of an intermediate round."""
        config, came, round_info = self._config, replies.clients, trial.round_info.number
        if not came.size:
            LOGGER.warning("Round %d: nothing came back of the intermediate round; the cohort stays.", round_info)
            return
        global_loss = self._losses[round_info] if round_info in self._losses else trial.loss(trial.parameters, came)
        self.observe(round_info, global_loss)
        known = [loss for _, loss in sorted(self._losses.items())]
        losses: dict[tuple[bytes, bytes], float] = {}
        means: list[float] = []

        def improvement(count: int) -> float:
            means.append(self._expected(trial, replies, count, losses))
            return global_loss - moving_average([*known, means[-1]], config.isp_smoothing)

        counts = range(1, came.size + 1, config.isp_step)
        if self._relative:
            improvements = [improvement(count) for count in counts]
            found = best_relative(counts, improvements, config.isp_relative_exponent)
        else:
            found, improvements = first_improvement(counts, improvement)
        if found is not None or config.isp_if_none == "all":
            reached = trial.roster.ids.size if found is None else found
            self._count = mixed(reached, self._count, config.isp_momentum)
        trial.record |= {
            "global_loss": global_loss,
            "tried": list(counts[: len(means)]),
            "losses": means,
            "improvements": improvements,
            "found": found,
        }

    def _expected(
        self, trial: IntermediateRound, replies: Replies, count: int, losses: dict[tuple[bytes, bytes], float]
    ) -> float:
        """Mean loss over `isp-draws` subsets of `count` clients (Algorithm 4); `losses` of subsets are reused."""
        key = self._seed, Purpose.PARTICIPATION, trial.round_info.number
        total = 0.0
        for draw in range(self._config.isp_draws):
            # Streams 0 and 1 drew who trains; each subset has two of its own.
            place = 2 + 2 * (count * self._config.isp_draws + draw)
            selection = trial.draw(replies.clients, count, stream(*key, place), stream(*key, place + 1))
            step = trial.model(selection, replies)
            subset = selection.clients.tobytes(), step.weights.tobytes()
            if subset not in losses:
                losses[subset] = trial.loss(step.parameters, selection.clients)
            total += losses[subset]
        return total / self._config.isp_draws

    def state(self) -> dict[str, NDArray[Any]]:
        """The number of clients and the known global losses: what `load_state` needs to go on identically."""
        rounds: Ints = np.array(sorted(self._losses), np.int64)
        losses = np.array([self._losses[number] for number in rounds.tolist()])
        return {"count": np.array(self._count), "rounds": rounds, "losses": losses}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up a state that `state` returned."""
        self._count = int(state["count"])
        self._losses = dict(zip(state["rounds"].tolist(), state["losses"].tolist(), strict=True))
