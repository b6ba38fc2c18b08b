"""Studies of a tuning: the settings that Optuna's sampler suggests for each trial, and their values in its storage.

A trial is written into the storage when it has its value. What the sampler suggests for trial n follows from the values
of the trials before it and from n alone, so that a tuning that was killed goes on as if it had not been.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsel_app.config import ConfigError, Value
from simulation.tuning.space import Range

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

STORAGE = "tuning.db"
RANDOM_TRIALS = 5
"""Trials after the first, which has the default settings, that are drawn at random; the sampler models those later."""
FAILURE = "failure"


def import_optuna() -> Any:
    """The package optuna. Raises ConfigError where it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("`fedsel tune` needs the package optuna: pip install 'fedsel[tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class MethodStudy:
    """Study of one method in the storage of the folder `out`; `seed` is that of the sampler."""

    def __init__(self, out: Path, strategy: str, space: Mapping[str, Range], *, maximize: bool, seed: int) -> None:
        self._optuna = import_optuna()
        self._direction = "maximize" if maximize else "minimize"
        self._distributions = {key: self._distribution(one) for key, one in space.items()}
        self._seed = seed
        with warnings.catch_warnings(action="ignore"):
            self._study: Study = self._optuna.create_study(
                storage=f"sqlite:///{out / STORAGE}",
                study_name=strategy,
                direction=self._direction,
                load_if_exists=True,
            )

    @property
    def trials(self) -> "Sequence[FrozenTrial]":
        """Trials that are done, by number."""
        return self._study.get_trials(deepcopy=False)

    def suggest(self, number: int) -> dict[str, Value]:
        """Settings of the trial `number`, from 2, whose predecessors are done."""
        sampler = self._optuna.samplers.TPESampler(seed=self._seed + number, n_startup_trials=RANDOM_TRIALS)
        history = [trial for trial in self.trials[: number - 1] if trial.params.keys() == self._distributions.keys()]
        with warnings.catch_warnings(action="ignore"):
            study = self._optuna.create_study(sampler=sampler, direction=self._direction)
            study.add_trials(history)
            return dict(study.ask(self._distributions).params)

    def add(self, settings: Mapping[str, Value], value: float | None, failure: str, *, inside: bool) -> None:
        """Write the next trial: its settings, those of a space only if it lies `inside`, and its value or failure."""
        state = self._optuna.trial.TrialState
        trial = self._optuna.trial.create_trial(
            state=state.FAIL if value is None else state.COMPLETE,
            value=value,
            params=dict(settings) if inside else {},
            distributions=self._distributions if inside else {},
            user_attrs={"settings": dict(settings)} | ({FAILURE: failure} if failure else {}),
        )
        self._study.add_trial(trial)

    @staticmethod
    def _distribution(one: Range) -> "BaseDistribution":
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if one.choices:
            return CategoricalDistribution(one.choices)
        if one.whole:
            return IntDistribution(int(one.low), int(one.high), log=one.log)
        return FloatDistribution(one.low, one.high, log=one.log)
