"""Resumption of a run: it uses the settings in its folder, except those that say where it runs."""

from collections.abc import Mapping
from pathlib import Path

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.run_folder import PLACE, read_config
from simulation.experiments.configuration import AppConfig, resolve
from simulation.flower_app.settings import refuse_own_app


def resolve_resumed(folder: Path, values: Mapping[str, Value]) -> AppConfig:
    """Configuration of the interrupted run in `folder`, with `values` of the settings that change its place alone.

    Raises
    ------
    ConfigError
        For other settings, a folder without a run, and a run of a user's own Flower app.
    """
    if foreign := values.keys() - set(PLACE) | values.keys() & {"out"}:
        raise ConfigError(f"A resumed run goes on with its own settings; leave out {', '.join(sorted(foreign))}.")
    folder = folder.absolute()
    before = read_config(folder)
    refuse_own_app(before, folder)
    return resolve({**before, **values, "out": str(folder), "resume": True})
