"""Optuna studies of a tuning: the settings that a sampler suggests for each trial, and the stored values of the trials.

A trial is stored when it has a value or has failed. The suggestion for trial n depends only on n, on the seed and on
the earlier trials. So a tuning that was killed and restarted has the same trials as one that was not.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsel_app.config import ConfigError, Value
from simulation.workbench.tuning.space import Range

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

STORAGE = "tuning.db"
RANDOM_TRIALS = 5
"""Number of completed trials that the sampler's model needs. Until then the sampler draws settings at random."""
FAILURE = "failure"


def import_optuna() -> Any:
    """The package optuna. Raises ConfigError if it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("`fedsel tune` needs the package optuna: pip install 'fedsel[tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class MethodStudy:
    """Study of one method in the storage of the folder `out`; `seed` is for the sampler."""

    def __init__(self, out: Path, strategy: str, space: Mapping[str, Range], *, maximize: bool, seed: int) -> None:
        self._optuna = import_optuna()
        self._distributions = {key: self._distribution(one) for key, one in space.items()}
        self._seed = seed
        with warnings.catch_warnings(action="ignore"):
            self._study: Study = self._optuna.create_study(
                storage=f"sqlite:///{out / STORAGE}",
                study_name=strategy,
                direction="maximize" if maximize else "minimize",
                load_if_exists=True,
            )

    @property
    def trials(self) -> "Sequence[FrozenTrial]":
        """Finished and failed trials, in the order of their numbers."""
        return self._study.get_trials(deepcopy=False)

    def suggest(self, number: int) -> dict[str, Value]:
        """Settings for the trial `number` >= 2. All earlier trials must be stored."""
        sampler = self._optuna.samplers.TPESampler(seed=self._seed + number, n_startup_trials=RANDOM_TRIALS)
        history = [trial for trial in self.trials[: number - 1] if trial.params.keys() == self._distributions.keys()]
        with warnings.catch_warnings(action="ignore"):
            study = self._optuna.create_study(sampler=sampler, direction=self._study.direction)
            study.add_trials(history)
            return dict(study.ask(self._distributions).params)

    def add(self, settings: Mapping[str, Value], value: float | None, failure: str, *, inside: bool) -> None:
        """Store the next trial with its value or failure. The sampler learns only from settings `inside` the space."""
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
