"""A strategy's `RunContext` and a round's `Outcome` by hand, as the contract has them too."""

from strategies.testing.rehearsal import TRAINING, NoRecords, dense, make_context, make_roster, outcome

__all__ = ["TRAINING", "NoRecords", "dense", "make_context", "make_roster", "outcome"]
