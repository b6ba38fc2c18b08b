"""What each of the selected clients is told: the model, its learning rate, how much to send, and its own past."""

import secrets

import numpy as np
from flwr.common import FitIns, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy

from strategies.budget import cohort_fractions, round_fraction
from strategies.exchange import Clients
from strategies.roster import Floats, Roster, Round, Selection
from strategies.server_state import ServerState
from strategies.setup import Setup


class Instructor:
    """Writes the instructions of a run.

    Attributes
    ----------
    key : names the run to its clients, who keep their state under it
    durable : the round of the last checkpoint; 0 is none
    """

    def __init__(self, setup: Setup, roster: Roster, clients: Clients, server: ServerState) -> None:
        self._setup, self._roster, self._clients, self._server = setup, roster, clients, server
        self.key = secrets.token_hex(8)
        self.durable = 0

    def instruct(
        self, selection: Selection, now: Round, sent: Parameters, *, keep_state: bool = True
    ) -> tuple[list[tuple[ClientProxy, FitIns]], float, Floats]:
        """What each of the selected is told (without `keep_state` it forgets it), and the kept fractions."""
        setup, roster, estimates = self._setup, self._roster, self._server.estimates
        theta, fractions = self._fractions(selection, now)
        rate = setup.training.learning_rate(now.number, now.total)
        rates = np.full(selection.clients.size, rate) if selection.learning_rates is None else selection.learning_rates
        instructions: list[tuple[ClientProxy, FitIns]] = []
        for client, fraction, lr in zip(selection.clients.tolist(), fractions.tolist(), rates.tolist(), strict=True):
            config: dict[str, Scalar] = {
                "task": "train",
                "round": now.number,
                "lr": lr,
                "kept-fraction": fraction,
                "residual-decay": setup.compression.beta(theta),
                "curvature": now.number > setup.budget.kept_warmup_rounds,
                "reports": ",".join(sorted(self._server.reports)),
                "run": self.key,
                "asked": int(roster.last_selected[client]),
                "taken": int(roster.last_returned[client]),
                "durable": self.durable,
            }
            if estimates is not None:
                config["estimated"] = client in estimates
            if not keep_state:
                config["keep-state"] = False
            instructions.append((self._clients.proxies[client], FitIns(sent, config)))
        return instructions, theta, fractions

    def _fractions(self, selection: Selection, now: Round) -> tuple[float, Floats]:
        """The round's kept fraction and each selected client's."""
        setup, links = self._setup, self._setup.links
        if not setup.compression.sparsifies:
            return 1.0, np.ones(selection.clients.size)
        if selection.kept_fractions is not None:
            return round_fraction(now, setup.budget), selection.kept_fractions
        means = links.mean_uplink_bits_per_s, links.mean_step_s
        return cohort_fractions(selection, self._roster, means, setup.initial.size, now, setup.budget)
