"""Clients that report 10^6 for every loss and for every other number that methods select by."""

from clients.client import SelectionClient
from fedsel_app.messages.scalars import Report
from tests.support.in_process import run_in_process

LIARS = (1, 6, 11, 16)
SIZES = {"clients": 20, "cohort": 5, "rounds": 40, "local_steps": 5}
SETTINGS = {"model": "logistic", "eval_every": 40, "seed": 3} | SIZES
"""Four of twenty clients lie, as in docs/security.md."""


def run_with_lying_losses(folder, monkeypatch, liars=LIARS, **settings):
    """The rows of a run in which the clients `liars` lie about losses."""
    answer = SelectionClient.answer

    def lying(self, *asked):
        numbers, arrays = answer(self, *asked)
        if self._context.client in liars:
            numbers |= {name: 1e6 for name in ("loss", *Report) if name in numbers}
        return numbers, arrays

    with monkeypatch.context() as patch:
        patch.setattr(SelectionClient, "answer", lying)
        _, rows = run_in_process(folder, **SETTINGS | settings)
    return rows
