"""Run contexts with simulated links and a recorder that keeps the rows, and rosters after a first round."""

import json
from dataclasses import replace

import numpy as np

from fedsel_app.config import NetworkConfig, Settings
from fedsel_app.network.links import SimulatedLinks
from fedsel_app.records.run_folder import UnkeptRecords
from fedsel_app.records.schema import as_row
from strategies.roster import Roster
from strategies.testing.fakes import make_context

SIZE = 4
"""Parameters of the model that stub clients train."""


class Rows(UnkeptRecords):
    """Recorder that stores the rows as JSON would store them."""

    def __init__(self):
        super().__init__()
        self.rows, self.client_rows, self.finished = [], [], 0

    def clients(self, records):
        self.client_rows += map(as_row, records)

    def round(self, record):
        record.add_totals(self.rows[-1] if self.rows else {})
        self.rows.append(json.loads(json.dumps(as_row(record))))

    def checkpoint(self, arrays):
        self.saved = {name: np.array(array) for name, array in arrays.items()}

    def finish(self, final, best, selections):
        self.finished += 1
        self.parameters = final[0]


NO_BUFFERS = np.zeros(0, np.float32)


def context_of(method=None, *, clients=3, cohort=3, rounds=1, network=None, buffers=NO_BUFFERS, size=SIZE, **run):
    """Run context of a strategy: simulated links, a model of `size` zeros, and `Rows` for the records.

    All `buffers` are statistics; those above 0 are variances.
    """
    context = make_context(method or Settings(), clients=clients, cohort=cohort, rounds=rounds, size=size, **run)
    links = SimulatedLinks(network or NetworkConfig(), clients, context.run.seed)
    return replace(context, links=links, buffers=buffers, variances=buffers > 0.0, recorder=Rows())


def make_roster(clients=6, *, losses=None, examples=None, available=None):
    """Roster with all clients (or `available`), each with 100 examples, 50 steps, 3 Mb/s and 0.3 s a step."""
    roster = Roster(clients)
    roster.available[list(available if available is not None else range(clients))] = True
    roster.examples[:] = examples if examples is not None else 100
    roster.local_steps[:] = 50
    roster.uplink_bits_per_s[:], roster.step_s[:] = 3e6, 0.3
    if losses is not None:
        roster.losses[:] = losses
    return roster


def seen_roster(clients=5, **arguments):
    """Roster of `make_roster` in which every client was selected once."""
    roster = make_roster(clients, **arguments)
    roster.selections[:] = 1
    return roster
