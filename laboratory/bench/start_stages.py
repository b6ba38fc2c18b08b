"""Stages of a run, from its first import to its picture: a process that carries it out and prints their times.

`python start_stages.py FOLDER KEY=VALUE ...` makes the run in FOLDER; its last line is JSON: stage ->
[seconds, processor seconds]. Every import stands in the stage that it belongs to.
"""

import json
import sys
import time
from pathlib import Path


class Stages:
    """Stages of this process, measured one after the other from its first line on.

    Attributes
    ----------
    times : stage -> seconds, and processor seconds of all threads
    """

    def __init__(self) -> None:
        self.times: dict[str, tuple[float, float]] = {}
        self._began = time.perf_counter(), time.process_time()

    def end(self, name: str) -> None:
        """End the stage `name`, and begin the next; one that ends several times is added up."""
        now = time.perf_counter(), time.process_time()
        wall_s, cpu_s = self.times.get(name, (0.0, 0.0))
        self.times[name] = wall_s + now[0] - self._began[0], cpu_s + now[1] - self._began[1]
        self._began = now


def carry_out(folder: Path, values: list[str], stages: Stages) -> None:
    """Carry out the run with the settings `values`, each KEY=VALUE, in `folder`."""
    from simulation.engines.this_process import uncollected_imports

    with uncollected_imports():
        import numpy  # noqa: F401

        stages.end("import NumPy")
        import torch  # noqa: F401

        stages.end("import torch")
        import flwr.client
        import flwr.server  # noqa: F401

        stages.end("import Flower's client and server")
        from rich.console import Console

        from fedsel_app.wiring.configuration import resolve
        from simulation.engines.choice import choose
        from simulation.workbench.command_line.parser import parse_setting
        from simulation.workbench.report.one_run import RunDisplay, report_run

        stages.end("import fedsel")
    config = resolve(dict(parse_setting(value) for value in values) | {"out": str(folder)})
    choice = choose(config)
    stages.end("settings, data, choice of the engine")
    simulate = choice.simulate
    stages.end("import the engine")
    display = RunDisplay(config.run.rounds, Console())

    def show(row: dict[str, int]) -> None:
        display.show(row)
        stages.end("start of the engine, first round" if row["round"] == 1 else "the other rounds")

    simulate(config, show)
    stages.end("end of the run")
    report_run(folder, Console())
    stages.end("summary")


if __name__ == "__main__":
    measured = Stages()
    carry_out(Path(sys.argv[1]), sys.argv[2:], measured)
    print(json.dumps(measured.times))
