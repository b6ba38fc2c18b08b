"""A strategy's `RunContext` and a round's `Outcome` by hand, as the contract has them too."""

from strategies.testing.fakes import NoRecords, dense, make_context, make_roster, outcome

__all__ = ["NoRecords", "dense", "make_context", "make_roster", "outcome"]
