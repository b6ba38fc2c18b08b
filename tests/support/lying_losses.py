"""Clients that report 10^6 for every loss and for every other number that methods select by."""

from dataclasses import replace

from clients.client import SelectionClient
from fedsel_app.messages.scalars import Report
from tests.support.in_process import run_in_process

LIARS = (1, 6, 11, 16)
SIZES = {"clients": 20, "cohort": 5, "rounds": 40, "local_steps": 5}
SETTINGS = {"model": "logistic", "eval_every": 40, "seed": 3} | SIZES
"""Four of twenty clients lie, as in docs/security.md."""


def run_with_lying_losses(folder, monkeypatch, liars=LIARS, **settings):
    """The rows of a run in which the clients `liars` lie about losses."""
    fit, evaluation = SelectionClient.fit, SelectionClient.evaluation

    def lying_fit(self, parameters, config):
        arrays, examples, metrics = fit(self, parameters, config)
        if self._context.client in liars:
            metrics |= {name: 1e6 for name in ("loss", *Report) if name in metrics}
        return arrays, examples, metrics

    def lying_evaluation(self, *arguments):
        answer = evaluation(self, *arguments)
        return replace(answer, loss=1e6) if self._context.client in liars else answer

    with monkeypatch.context() as patch:
        patch.setattr(SelectionClient, "fit", lying_fit)
        patch.setattr(SelectionClient, "evaluation", lying_evaluation)
        _, rows = run_in_process(folder, **SETTINGS | settings)
    return rows
