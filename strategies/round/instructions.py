"""Train instructions: each selected client gets the model, its learning rate, its kept fraction and its history."""

import hashlib
import secrets
from collections.abc import Container
from dataclasses import replace
from typing import Any

import numpy as np

from fedsel_app.config import ConfigError
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.messages.scalars import METRIC, Report
from strategies.roster import Floats, Roster, RoundInfo, Selection
from strategies.round.budget import cohort_fractions, round_fraction
from strategies.round.common_entries import CommonEntries
from strategies.run_context import RunContext


class InstructionBuilder:
    """Instruction builder: writes the train instructions of a run.

    Parameters
    ----------
    reports : numbers that every reply must contain, and metrics
    estimated : with ef21, the clients whose update the server estimates; changes from round to round
    common : with common-k, the entries of the round
    test_part : True if clients measure the metrics on their own test parts

    Attributes
    ----------
    key : secret of the run, from which the server computes each client's own run key
    last_checkpoint : round of the last checkpoint; 0 is none
    earlier : client that was under way at the last checkpoint -> the round of its last aggregated update then
    """

    def __init__(
        self,
        context: RunContext,
        roster: Roster,
        reports: frozenset[str],
        estimated: Container[int] = (),
        common: CommonEntries | None = None,
        *,
        test_part: bool = False,
    ) -> None:
        self._context, self._roster = context, roster
        self._estimated, self._common, self._test_part = estimated, common, test_part
        metrics = {report for report in reports if report.startswith(METRIC)}
        self._reports = tuple(map(Report, sorted(reports - metrics)))
        self._metrics = ",".join(sorted(metric.removeprefix(METRIC) for metric in metrics))
        self.key = secrets.token_hex(16)
        self.last_checkpoint = 0
        self.earlier: dict[int, int] = {}

    def instruct(
        self,
        selection: Selection,
        round_info: RoundInfo,
        *,
        keep_state: bool = True,
        statistics: bool = False,
        local_epochs: int = 0,
    ) -> tuple[dict[int, TrainInstruction], float]:
        """Write the instruction of each selected client, by ascending id. Also return the round's kept fraction.

        The other arguments are fields of `TrainInstruction`. Local work of the selection replaces `local_epochs`.
        """
        context, roster = self._context, self._roster
        masked = statistics and context.privacy.masked
        if selection.own_work and context.losses_optional:
            raise ConfigError(
                "Leave 'local_steps' and 'local_epochs' out of the method's selection: the local work of the clients "
                "is yours in a Flower app of your own."
            )
        theta, fractions = self._fractions(selection, round_info)
        entries = buffers_exponent = None
        if self._common is not None:
            buffers_exponent = self._common.buffers_exponent if masked else None
            most = int(roster.examples[selection.clients].max())
            entries = self._common.statement(selection.clients.size, most)
        rate = context.training.learning_rate(round_info.scheduled, round_info.total)
        if selection.local_steps is not None:
            local_epochs = 0
        columns = [
            np.full(selection.clients.size, default) if own is None else own
            for own, default in (
                (selection.learning_rates, rate),
                (selection.local_steps, 0),
                (selection.local_epochs, local_epochs),
            )
        ]
        rows = zip(selection.clients.tolist(), fractions.tolist(), *(own.tolist() for own in columns), strict=True)
        instructions: dict[int, TrainInstruction] = {}
        for client, fraction, lr, steps, epochs in rows:
            instructions[client] = TrainInstruction(
                server_round=round_info.number,
                run_key=client_run_key(self.key, client),
                learning_rate=lr,
                kept_fraction=fraction,
                residual_decay=context.residual.beta(theta),
                curvature=round_info.scheduled > context.budget.kept_warmup_rounds,
                last_instructed=int(roster.last_selected[client]),
                last_aggregated=int(roster.last_returned[client]),
                taken=float(roster.taken[client]),
                last_checkpoint=min(self.last_checkpoint, self.earlier.get(client, self.last_checkpoint)),
                reports=self._reports,
                metrics=self._metrics,
                test_part=self._test_part,
                estimated=client in self._estimated,
                keep_state=keep_state,
                statistics=statistics,
                local_steps=steps,
                local_epochs=epochs,
                entries=entries,
                buffers_exponent=buffers_exponent,
            )
        return instructions, theta

    def history(self, client: int) -> dict[str, Any]:
        """Fields of a `PersonalInstruction`: where a client finds the layers of the model that stay with it."""
        return {
            "run_key": client_run_key(self.key, client),
            "last_instructed": int(self._roster.last_selected[client]),
            "last_aggregated": int(self._roster.last_returned[client]),
        }

    def _fractions(self, selection: Selection, round_info: RoundInfo) -> tuple[float, Floats]:
        """Kept fraction of the round, and of each selected client."""
        context, links = self._context, self._context.links
        if not context.compression.own_fractions:
            theta = round_fraction(round_info, context) if context.compression.sparsifies else 1.0
            return theta, np.full(selection.clients.size, theta)
        if selection.kept_fractions is not None:
            return round_fraction(round_info, context), selection.kept_fractions
        if context.reported_values.loss_clip:
            # Scores depend on losses that clients report, and a larger share of the budget for one client is taken from
            # the others.
            selection = replace(selection, scores=np.ones(selection.clients.size))
        means = links.mean_uplink_bits_per_s, links.mean_step_s
        steps = selection.steps(self._roster, context.training, context.admission.least_examples)
        return cohort_fractions(selection, self._roster, steps, means, context.initial.size, round_info, context)


def client_run_key(secret: str, client: int) -> str:
    """The key under which a client keeps its state of a run: 32 hexadecimal digits.

    A client knows its own key alone. So no other server, and no other client, can name the state of this client.
    """
    return hashlib.sha256(f"{secret} {client}".encode()).hexdigest()[:32]
