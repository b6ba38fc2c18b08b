"""A strategy's `Setup` and a round's `Outcome` by hand, as the contract has them too."""

from strategies.contract.rehearsal import TRAINING, NoRecords, dense, make_roster, make_setup, outcome

__all__ = ["TRAINING", "NoRecords", "dense", "make_roster", "make_setup", "outcome"]
