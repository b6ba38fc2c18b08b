"""SuperLink that answers when there is something: ``python -m simulation.deployment.superlink`` for `flower-superlink`.

It takes the same arguments. SuperNodes and a ServerApp of fedsel work with Flower's own too, but must then ask again
and again; see `simulation.flower_internals.supernode`.
"""

from simulation.flower_internals.held_calls import Arrivals
from simulation.flower_internals.superlink import answer_when_stored
from simulation.processes import exit_on_signals

NODE_HOLD_S, REPLY_HOLD_S = 20.0, 3.0
"""Longest hold of a SuperNode's call, and of a ServerApp's: a message that expires is only seen in the next call."""

if __name__ == "__main__":
    with exit_on_signals():
        answer_when_stored(Arrivals(), NODE_HOLD_S, REPLY_HOLD_S)
