"""SuperLink of fedsel: ``python -m simulation.deployment.superlink`` for `flower-superlink`.

It takes the same arguments. SuperNodes and a ServerApp of fedsel work with Flower's own too, but more slowly, and it
lets every user of the machine submit runs; see `simulation.flower_internals.superlink`.
"""

from simulation.flower_internals.superlink import run_superlink
from simulation.processes import exit_on_signals

if __name__ == "__main__":
    with exit_on_signals():
        run_superlink()
