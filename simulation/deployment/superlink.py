"""SuperLink of fedsel: ``python -m simulation.deployment.superlink`` for `flower-superlink`.

It takes the same arguments, and ``--provisioned FOLDER``, a server's folder that `fedsel provision` made: it admits the
clients whose public keys lie there. SuperNodes and a ServerApp of fedsel work with Flower's own too, but more
slowly, and it lets every user of the machine submit runs; see `simulation.flower_internals.superlink`.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path

from simulation.flower_internals.superlink import run_superlink
from simulation.processes import exit_on_signals

if __name__ == "__main__":
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--provisioned", type=Path)
    own, sys.argv[1:] = parser.parse_known_args()
    with exit_on_signals():
        run_superlink(own.provisioned)
