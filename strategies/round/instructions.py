"""What each of the selected clients is told: the model, its learning rate, how much to send, and its own past."""

import secrets
from collections.abc import Container

import numpy as np
from flwr.common import FitIns, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy

from strategies.roster import Floats, Roster, RoundInfo, Selection
from strategies.round.budget import cohort_fractions, round_fraction
from strategies.round.connections import Clients
from strategies.run_context import RunContext


class InstructionBuilder:
    """Writes the instructions of a run.

    Attributes
    ----------
    key : names the run to its clients, who keep their state under it
    durable : the round of the last checkpoint; 0 is none
    """

    def __init__(
        self,
        context: RunContext,
        roster: Roster,
        clients: Clients,
        reports: frozenset[str],
        estimates: Container[int] | None,
    ) -> None:
        self._context, self._roster, self._clients = context, roster, clients
        self._reports, self._estimates = reports, estimates
        self.key = secrets.token_hex(8)
        self.durable = 0

    def instruct(
        self, selection: Selection, round_info: RoundInfo, sent: Parameters, *, keep_state: bool = True
    ) -> tuple[list[tuple[ClientProxy, FitIns]], float, Floats]:
        """What each of the selected is told (without `keep_state` it forgets it), and the kept fractions."""
        context, roster = self._context, self._roster
        theta, fractions = self._fractions(selection, round_info)
        rate = context.training.learning_rate(round_info.number, round_info.total)
        rates = np.full(selection.clients.size, rate) if selection.learning_rates is None else selection.learning_rates
        instructions: list[tuple[ClientProxy, FitIns]] = []
        for client, fraction, lr in zip(selection.clients.tolist(), fractions.tolist(), rates.tolist(), strict=True):
            config: dict[str, Scalar] = {
                "task": "train",
                "round": round_info.number,
                "lr": lr,
                "kept-fraction": fraction,
                "residual-decay": context.residual.beta(theta),
                "curvature": round_info.number > context.budget.kept_warmup_rounds,
                "reports": ",".join(sorted(self._reports)),
                "run": self.key,
                "asked": int(roster.last_selected[client]),
                "taken": int(roster.last_returned[client]),
                "durable": self.durable,
            }
            if self._estimates is not None:
                config["estimated"] = client in self._estimates
            if not keep_state:
                config["keep-state"] = False
            instructions.append((self._clients.proxies[client], FitIns(sent, config)))
        return instructions, theta, fractions

    def _fractions(self, selection: Selection, round_info: RoundInfo) -> tuple[float, Floats]:
        """The round's kept fraction and each selected client's."""
        context, links = self._context, self._context.links
        if not context.compression.sparsifies:
            return 1.0, np.ones(selection.clients.size)
        if selection.kept_fractions is not None:
            return round_fraction(round_info, context.budget), selection.kept_fractions
        means = links.mean_uplink_bits_per_s, links.mean_step_s
        return cohort_fractions(selection, self._roster, means, context.initial.size, round_info, context.budget)
