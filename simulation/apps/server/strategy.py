"""Strategy for a user's own ServerApp: any strategy of fedsel with the model and clients of the app.

`strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)` runs all rounds.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from fedsel_app.config import ConfigError
from fedsel_app.config.settings import setting_value
from simulation.apps.server.app_strategy import AppStrategy
from simulation.apps.server.flowers_words import refuse_options, refuse_strategy
from simulation.apps.server.settings import AppOptions


def strategy(name: str, *, clients: int, cohort: int, out: str | Path | None = None, **options: Any) -> AppStrategy:
    """Build a Flower strategy for your own ServerApp and your own clients.

    Parameters
    ----------
    name
        Selection method, as `fedsel methods` lists them, or package.module:Class.
    clients, cohort
        Number of clients (SuperNodes), and number of clients that train in a round.
    out
        Folder of the records; None: no records. With `resume="auto"` the run in this folder is resumed, or starts if
        it has not yet started. `start` returns the result of a finished run.
    options
        The fields of `AppOptions`, such as `train_config_fn`, and fedsel's settings with underscores instead of dashes:
        rounds (unless `start` gets them), seed, compressor, kept_fraction, links and so on, and the method's own
        settings. See docs/flower-app.md.

    Raises
    ------
    ConfigError
        If the settings cannot be run, or the folder cannot be written.
    """
    refuse_strategy(name)
    refuse_options(options)
    names = {field.name for field in fields(AppOptions)}
    settings = {key: value for key, value in options.items() if key not in names}
    settings |= {"clients": clients, "cohort": cohort}
    settings = {key: setting_value(value) for key, value in settings.items()}
    if out is not None:
        settings["out"] = str(Path(out).expanduser().absolute())
    if resume := settings.get("resume"):
        if out is None:
            raise ConfigError("Set 'out', the folder of the run that 'resume' continues, or leave 'resume' out.")
        if resume != "auto":
            raise ConfigError(f"Set 'resume' to 'auto', or leave it out. Got {resume!r}.")
        settings["resume"] = (Path(str(settings["out"])) / "config.json").exists()
    return AppStrategy(name, settings, AppOptions(**{key: options[key] for key in options.keys() & names}))
