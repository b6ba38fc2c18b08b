"""Central differential privacy: every update is clipped, and the server adds Gaussian noise to their mean.

H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
arXiv 1710.06963; R. C. Geyer, T. Klein, M. Nabi, arXiv 1712.07557. The round's aggregate is
(1/r) (sum_i u_i min(1, S / ||u_i||) + N(0, z^2 S^2 I)), with S = `dp-clip-norm` and z = `dp-noise-multiplier`.

It protects whether the data of any one client took part, against everybody who sees the global models, including
clients. The server sees every update and is trusted. The comparison is with a client without data, whose updates are
zero. Participation is public: who takes part, when, and how fast its link and its computer are. Everything else that a
client sends must not change the other clients' part of the sum. A setting has only the values for which that is proven
(`private` in `fedsel_app.config.settings.setting`; docs/security.md has the proof). The server's records contain no
noise. The decoded update is clipped: a residual that a client keeps is sent in a later round and counts there.

The accountant of opacus counts T releases of the Gaussian mechanism, and assumes that a client took part in each of
them. Subsampling amplifies privacy only if cohorts are uniform and secret, so fedsel does not use it. So epsilon is too
large for `random`, and right for methods that select the same clients again and again.

A run that was killed and resumed repeats rounds, with new noise and perhaps other updates; each repetition is counted.
Given all models that were released before, a release is a Gaussian mechanism of sensitivity S with its own noise, in a
new or a repeated round. So T releases compose as T rounds do. `protect` counts a release durably before it draws the
noise, so T is never below the number of released models. It is above it if a kill prevented a release.

Deviation: the noise comes from the operating system's entropy and not from the run's seed. Every client knows the seed
and could subtract noise that follows from it. So such a run cannot be repeated bit for bit.
"""

import secrets
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, PrivacyConfig
from fedsel_app.exact_sums import weighted_sum
from fedsel_app.records.releases import RELEASES, Releases
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update
from strategies.roster import Floats


class Privacy:
    """Gaussian mechanism of a run and its accountant. Raises ConfigError if the accountant's library is not installed.

    Parameters
    ----------
    releases : count of the aggregates that were released
    """

    def __init__(self, config: PrivacyConfig, releases: Releases, rng: np.random.Generator | None = None) -> None:
        try:
            self._accountants: Any = import_module("opacus.accountants")
        except ImportError as error:
            raise ConfigError(
                "The 'dp-clip-norm' parameter needs the package opacus, whose accountant computes the privacy loss:"
                " pip install 'fedsel[privacy]', or set it to 0."
            ) from error
        self._config = config
        self._rng = stream(secrets.randbits(128), Purpose.PRIVACY) if rng is None else rng
        self._releases = releases

    def protect(self, updates: Sequence[Update]) -> tuple[Floats, Floats]:
        """The mean of r >= 1 clipped updates with noise, float64 (N,), and the weight of each in it, float64 (r,).

        Raises RecordError if the release cannot be counted. Then nothing is released.
        """
        self._releases.add()
        clip, count = self._config.dp_clip_norm, len(updates)
        shares = np.array([clip / max(update.norm(), clip) for update in updates])
        aggregate = self._rng.normal(0.0, self._config.dp_noise_multiplier * clip / count, updates[0].size)
        aggregate += weighted_sum(updates, shares.tolist(), precise=True) / count
        return aggregate, shares / count

    def epsilon(self) -> float:
        """Privacy loss epsilon of the releases so far, at `dp-delta`; at least 0."""
        accountant, count = self._accountants.RDPAccountant(), self._releases.count
        accountant.history = [(self._config.dp_noise_multiplier, 1.0, count)]
        with warnings.catch_warnings(action="ignore"):  # that more orders might give a lower bound
            return max(float(accountant.get_epsilon(self._config.dp_delta)), 0.0) if count else 0.0

    def state(self) -> dict[str, NDArray[Any]]:
        """The number of releases. A resumed run checks with it that no release is missing."""
        return {"releases": np.array(self._releases.count)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load a state that `state` returned. Raises ValueError if releases that it counted are missing."""
        counted, on_record = int(state["releases"]), self._releases.count
        if on_record < counted:
            raise ValueError(f"{counted} models were released and {on_record} are on record in {RELEASES}")


def refuse_statistics(config: PrivacyConfig, buffers: int) -> None:
    """Raise ConfigError for a model with buffers that are sent, which would be released without noise."""
    if config.dp_clip_norm and buffers:
        raise ConfigError(
            "The model has BatchNorm statistics or other buffers that change, which clients measure and 'dp-clip-norm' "
            "does not protect: choose a 'model' without statistics, and set 'changing-buffers' to local."
        )
