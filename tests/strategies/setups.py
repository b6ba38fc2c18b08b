"""A strategy's `Setup` and a round's `Outcome` by hand, as the contract has them too."""

from strategies.contract.rehearsal import NoRecords, dense, make_roster, make_setup, outcome

__all__ = ["NoRecords", "dense", "make_roster", "make_setup", "outcome"]
