"""Participation policies: how many clients train in a round, by a schedule or by search (ISP).

Linear growth is called AdaFL in the ISP paper (Skorik et al., Sec. B.4, after Q. Li, X. Li, L. Zhou, X. Yan, "AdaFL:
Adaptive Client Selection and Dynamic Contribution Evaluation for Efficient Federated Learning", ICASSP 2024):
`adafl-full` grows from 10 clients to all clients over the run; `adafl-econom` is the rule of the ISP authors' code.

ISP (Intelligent Selection of Participants) searches for the number of clients, with any selection method: Skorik,
Dorofeev, Molodtsov, Avetisyan, Bylinkin, Medyakov and Beznosikov, "Communication-Efficient Federated Learning with
Adaptive Number of Participants" (no number known). Here are Algorithms 2 (when to search), 3 (the search) and 4 (the
expected loss), and Eq. 6 (ISP-RI). Every Delta rounds all clients train from the global model. For m = 1, 1 + w, ... N,
the method's own rule draws subsets of m clients, and their updates are aggregated as the method aggregates. The first m
with a smoothed mean loss below the global model's is used for the next Delta rounds.

Deviations
----------
- The longer local training in the warm-up of `adafl-econom` (3 epochs in the authors' code) is left out.
- Halves are rounded to even, as the authors' code rounds them.

Of ISP:

- Around a method with rounds of its own (Terraform), Delta counts those, and m is the size of the pool that their first
  iteration draws.
- In the intermediate round clients train as if the method had selected all of them, with the method's kept fractions
  and learning rates. If it would select fewer (it draws with replacement), all train by the shared settings.
- With `isp-sample` below 1 the method selects that share of the available clients for the intermediate round (App. C.1
  says "samples subsets", C ~ S), whether its updates are discarded or aggregated. The search tries no m above it.
- The subsets are drawn among the clients whose updates arrived in the intermediate round.
- A subset that was drawn before with the same weights is not evaluated again, because its loss is the same.
- A candidate has the BatchNorm statistics of its clients' training, averaged by examples, as in the authors' code. The
  global model has such statistics only with `calibration-form` = training.
- The moving average starts at the oldest loss of the window. It uses the known global losses: those of every round with
  a surrogate set or `client-eval`, otherwise only that of this round (which, under the text's rule, cannot change the
  first m).
- f weighs clients by their test examples. All available clients test every model (`isp-jury`). In Algorithm 4, line 18,
  only a candidate's own clients test it; f(w) is then taken over the clients of the intermediate round. A client that
  did not test f(w) tests no candidate. A client that fails to test one candidate is missing only for this one.
- The first m that is found is used without momentum, as in the authors' code; Algorithm 3, line 8, mixes it with the
  first cohort too.
- A client's mini-batches are a function of seed and round. So it trains in the intermediate round as in the round
  itself.
- The new m is rounded to the nearest integer (halves to even), or down as in the authors' code (`isp-form`).
- The authors' code compares the raw mean of the candidates with the moving average of the past losses, f(w) included
  (`isp-smoothing-rule`). It averages over all past rounds; here the average is over the same window.
- The authors' code starts with 7 rounds in which all clients train 3 epochs (`isp-warmup-rounds`, `isp-warmup-epochs`).
  Here the first search is in the next round; the round of the first search in their code is not known.
- ISP-RI takes the largest smoothed improvement / m (Eq. 6 with alpha = 1), even if it is not above 0. Eq. 6 is printed
  with the other sign: df < 0 is an improvement (Eq. 5, Alg. 3), so its argmax improves least per client.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ParticipationConfig
from fedsel_app.records.schema import SearchRecord
from fedsel_app.seeds import Purpose, stream
from strategies.checkpoint import Arrays
from strategies.opened import OpenRound
from strategies.roster import NOBODY, Ints, RoundInfo, Selection
from strategies.round.replies.training import Replies
from strategies.run_context import RunContext

FULL_FIRST = 10
ECONOM_FIRST = 5
LOGGER = logging.getLogger("fedsel")
RELATIVE_EXPONENT = 1.0
"""Exponent alpha of ISP-RI."""
WINDOW = 5
"""Number of rounds in the moving average of the global losses, including this one."""


def linear_growth(elapsed: float, first: int, last: int, every: float) -> int:
    """Linear growth: m_0 + `elapsed` / `every`, at most `last`; halves are rounded to even."""
    return round(min(first + max(elapsed, 0.0) / every, last))


def scheduled(config: ParticipationConfig, round_info: RoundInfo, cohort: int, clients: int) -> int:
    """Number of `clients` that train in a round, at least 1: by the schedule, or the fixed `cohort`."""
    count = cohort
    if config.participation == "adafl-full":
        first = min(config.growth_first or FULL_FIRST, clients)
        growing = max(round_info.total - 1, 1) / max(clients - first, 1)
        count = linear_growth(round_info.scheduled - 1, first, clients, growing)
    elif config.participation == "adafl-econom":
        elapsed = round_info.scheduled - config.growth_warmup
        count = linear_growth(elapsed, config.growth_first or ECONOM_FIRST, config.growth_last, config.growth_every)
    return min(max(count, 1), clients)


class Participation:
    """Participation policy of a run: how many clients train in a round, by a schedule.

    A policy that searches overrides the first three functions.

    Attributes
    ----------
    needs_single_updates : `learn` reads the updates of the clients
    """

    needs_single_updates = False

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def count(self, opened: OpenRound) -> int:
        """Number of clients that train in a round. It may be larger than the number that is connected.

        A policy may also set the round's `local_epochs` and `statistics`.
        """
        run = self._context.run
        return scheduled(self._context.participation, opened.info, run.cohort, run.clients)

    def learn(self, opened: OpenRound, replies: Replies) -> None:
        """Learn from the replies of a round, before they are aggregated."""

    def observe(self, server_round: int, loss: float, jury: Ints | None = None) -> None:
        """Learn the loss of the global model at the start of round `server_round`.

        `jury` are the clients that tested it, int64; None if it is from the surrogate set.
        """

    def state(self) -> Arrays:
        """The state of the policy."""
        return {}

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned."""


def moving_average(losses: Sequence[float], weight: float) -> float:
    """Exponential moving average of `losses`, oldest first: a <- weight f + (1 - weight) a, from the first one."""
    average = losses[0]
    for loss in losses[1:]:
        average = weight * loss + (1.0 - weight) * average
    return average


def first_improvement(counts: Sequence[int], improvement: Callable[[int], float]) -> tuple[int | None, list[float]]:
    """The first of `counts` with an improvement above 0 (Algorithm 3), or None, and the improvements up to it."""
    improvements: list[float] = []
    for count in counts:
        improvements.append(improvement(count))
        if improvements[-1] > 0.0:
            return count, improvements
    return None, improvements


def best_relative(counts: Sequence[int], improvements: Sequence[float], exponent: float) -> int | None:
    """ISP-RI: argmax of improvement(m) / m^alpha, the smallest of equals; None if no improvement is finite.

    This is Eq. 6 with the sign that the paper means: improvement = -df.
    """
    ratios = {m: gain / m**exponent for m, gain in zip(counts, improvements, strict=True) if math.isfinite(gain)}
    return max(ratios, key=lambda m: ratios[m]) if ratios else None


def mixed(new: int, old: int, momentum: float, *, down: bool = False) -> int:
    """Momentum of the number of clients: beta m_found + (1 - beta) m_old as an integer, at least 1.

    This is Algorithm 3, line 8. It is rounded to the nearest integer, or `down`.
    """
    number = momentum * new + (1.0 - momentum) * old
    return max(math.floor(number) if down else round(number), 1)


def sample_size(share: float, available: int) -> int:
    """Number of the `available` clients that train for a search, at least 1."""
    return max(math.ceil(round(share * available, 6)), 1)


class ISP(Participation):
    """Intelligent Selection of Participants (ISP): searches for the number of clients every `isp-interval` rounds.

    Attributes
    ----------
    cohort : number of clients that train until the next search
    """

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._config, self._loss_config = context.isp, context.search_loss
        self.cohort = context.run.cohort
        self._aggregates = self.needs_single_updates = self._config.isp_form == "code"
        self._found_before = False
        self._losses: dict[int, float] = {}
        """Round -> loss of the global model at its start."""
        self._jury = NOBODY
        """Clients that tested for the newest of these losses; none if it is from the surrogate set."""

    def searches(self, info: RoundInfo) -> bool:
        """True in rounds that search (Algorithm 2): the first after the warm-up, then every `isp-interval` rounds.

        If the method has rounds of its own, these count, and their first iterations search.
        """
        elapsed = info.scheduled - 1 - self._config.isp_warmup_rounds
        return elapsed >= 0 and elapsed % self._config.isp_interval == 0 and info.iteration in (None, 1)

    def count(self, opened: OpenRound) -> int:
        """Number of clients that train in a round: all in the warm-up, a sample if the search itself is aggregated.

        In other rounds that search, an intermediate round comes first, whose updates are discarded. Later iterations of
        a method's own round have no limit: the method chooses among the clients of the first.
        """
        info = opened.info
        if self._context.surrogate is not None:
            self.observe(info.number, *opened.loss(opened.model, NOBODY))
        if info.scheduled <= self._config.isp_warmup_rounds:
            opened.local_epochs = self._config.isp_warmup_epochs
            return opened.roster.ids.size
        if info.iteration not in (None, 1):
            return opened.roster.ids.size
        if self.searches(info):
            opened.probe(opened.roster.ids)
            if self._aggregates:
                opened.statistics = True
                return sample_size(self._config.isp_sample, opened.roster.ids.size)
            if opened.roster.ids.size:
                self._search(opened, opened.train(self._intermediate(opened)))
        return self.cohort

    def learn(self, opened: OpenRound, replies: Replies) -> None:
        """Search among the updates of a round that is itself the intermediate round."""
        if self._aggregates and self.searches(opened.info):
            self._search(opened, replies)

    def _intermediate(self, opened: OpenRound) -> Selection:
        """The clients of the intermediate round."""
        available, key = opened.roster.ids, (self._context.run.seed, Purpose.PARTICIPATION, opened.info.number)
        count = sample_size(self._config.isp_sample, available.size)
        selection = opened.draw(available, count, stream(*key, 0), stream(*key, 1))
        if selection.clients.size < count == available.size:
            return Selection(available, np.ones(count))
        return selection

    def observe(self, server_round: int, loss: float, jury: Ints | None = None) -> None:
        """Keep the loss of the global model at the start of round `server_round`, if it is finite.

        `jury` are the clients that tested it, int64; None if it is from the surrogate set.
        """
        if math.isfinite(loss):
            self._losses[server_round] = loss
        self._jury = NOBODY if jury is None else jury
        oldest = server_round - WINDOW
        self._losses = {number: value for number, value in self._losses.items() if number > oldest}

    def _search(self, opened: OpenRound, replies: Replies) -> None:
        """Algorithm 3, or Eq. 6, over the updates of an intermediate round."""
        config, clients, number = self._config, replies.clients, opened.info.number
        if not clients.size:
            LOGGER.warning("Round %d: no update arrived in the intermediate round; the cohort does not change.", number)
            return
        global_loss = self._global_loss(opened, clients)
        global_losses = [loss for _, loss in sorted(self._losses.items())] or [global_loss]
        subset_losses: dict[tuple[bytes, bytes], float] = {}
        means: list[float] = []

        def improvement(count: int) -> float:
            means.append(self._expected_loss(opened, replies, count, subset_losses))
            if self._loss_config.isp_smoothing_rule == "code":
                return moving_average(global_losses, self._loss_config.isp_smoothing) - means[-1]
            return global_loss - moving_average([*global_losses, means[-1]], self._loss_config.isp_smoothing)

        counts = range(1, clients.size + 1, config.isp_step)
        if self._context.participation.participation == "isp-ri":
            improvements = [improvement(count) for count in counts]
            best = best_relative(counts, improvements, RELATIVE_EXPONENT)
        else:
            best, improvements = first_improvement(counts, improvement)
        if best is not None or not self._aggregates:
            reached = opened.roster.ids.size if best is None else best
            momentum = config.isp_momentum if self._found_before else 1.0
            self.cohort, self._found_before = mixed(reached, self.cohort, momentum, down=self._aggregates), True
        search = opened.record.search or SearchRecord()
        opened.record.search = search | {
            "global_loss": global_loss,
            "tried": list(counts[: len(means)]),
            "losses": means,
            "improvements": improvements,
            "found": best,
        }

    def _global_loss(self, opened: OpenRound, trained: Ints) -> float:
        """Loss f(w) of the global model: the known one, otherwise that of the jury or of the `trained` clients."""
        number, available = opened.info.number, opened.roster.ids
        same = self._loss_config.isp_jury == "same" and self._context.surrogate is None
        if number in self._losses and not (same and np.setdiff1d(self._jury, available).size):
            return self._losses[number]
        jury = available if same else trained
        loss, tested = opened.loss(opened.model, jury)
        self.observe(number, loss, tested)
        return loss

    def _expected_loss(
        self, opened: OpenRound, replies: Replies, count: int, subset_losses: dict[tuple[bytes, bytes], float]
    ) -> float:
        """Mean loss over `isp-draws` subsets of `count` clients (Algorithm 4). `subset_losses` caches losses of
        subsets.
        """
        key = self._context.run.seed, Purpose.PARTICIPATION, opened.info.number
        total = 0.0
        for draw in range(self._config.isp_draws):
            # Streams 0 and 1 drew the clients that train; each subset uses two other streams.
            place = 2 + 2 * (count * self._config.isp_draws + draw)
            selection = opened.draw(replies.clients, count, stream(*key, place), stream(*key, place + 1))
            model, weights = opened.preview(selection, replies)
            subset = selection.clients.tobytes(), weights.tobytes()
            if subset not in subset_losses:
                jury = self._jury if self._loss_config.isp_jury == "same" else selection.clients
                subset_losses[subset], _ = opened.loss(model, jury)
            total += subset_losses[subset]
        return total / self._config.isp_draws

    def state(self) -> dict[str, NDArray[Any]]:
        """The number of clients and the known global losses."""
        rounds: Ints = np.array(sorted(self._losses), np.int64)
        losses = np.array([self._losses[number] for number in rounds.tolist()])
        counts = {"count": np.array(self.cohort), "found_before": np.array(self._found_before)}
        return counts | {"rounds": rounds, "losses": losses, "jury": self._jury}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Load a state that `state` returned."""
        self.cohort, self._found_before = int(state["count"]), bool(state["found_before"])
        self._jury = state["jury"].astype(np.int64)
        self._losses = dict(zip(state["rounds"].tolist(), state["losses"].tolist(), strict=True))
