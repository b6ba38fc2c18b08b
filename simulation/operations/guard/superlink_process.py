"""SuperLink of `fedsel deploy`: this module runs instead of `flower-superlink`.

It takes the same arguments and one more, ``--provisioned FOLDER``, the server's folder that `fedsel provision` made.
With it, the SuperLink admits the clients whose public keys are in that folder. fedsel's SuperNodes and ServerApp also
work with Flower's own SuperLink, but that is slower and lets every user of the machine submit runs; see
`guard.superlink`.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path

from simulation.engines.processes import exit_on_signals
from simulation.operations.guard.superlink import run_superlink

if __name__ == "__main__":
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--provisioned", type=Path)
    arguments, sys.argv[1:] = parser.parse_known_args()
    with exit_on_signals():
        run_superlink(arguments.provisioned)
