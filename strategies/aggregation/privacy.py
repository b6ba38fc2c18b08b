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

Epsilon is exact for T releases in which a client took part each time. Given all models that were released before, a
release is a Gaussian mechanism of sensitivity at most S with its own noise. T of them are as private as one with noise
multiplier z / sqrt(T) (J. Dong, A. Roth, W. J. Su, arXiv 1905.02383, Corollary 3.3). With mu = sqrt(T) / z it holds
(B. Balle, Y.-X. Wang, ICML 2018, arXiv 1805.06530, Theorem 8):

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu).

Subsampling amplifies privacy only if cohorts are uniform and secret, so fedsel does not use it. So epsilon is too large
for `random`, and right for methods that select the same clients again and again.

A run that was killed and resumed repeats rounds, with new noise and perhaps other updates; each repetition is counted.
`protect` counts a release durably before it draws the noise, so T is never below the number of released models. It is
above it if a kill prevented a release.

Deviation: the noise comes from the operating system's cryptographic generator and not from the run's seed. Every client
knows the seed and could subtract noise that follows from it. So such a run cannot be repeated bit for bit.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtri

from fedsel_app.config import ConfigError, PrivacyConfig
from fedsel_app.exact_sums import weighted_sum
from fedsel_app.records.run_folder import RELEASES, Releases
from fedsel_app.wire.codec import Update
from strategies.roster import Floats

CERTAIN = 40.0
"""Phi of it is 1 in double precision."""


def exact_epsilon(noise_multiplier: float, releases: int, delta: float) -> float:
    """Smallest epsilon >= 0 of that many releases at `delta`: equation above, solved for a = mu/2 - epsilon/mu.

    Because exp(epsilon) phi(a - mu) = phi(a), the second term is phi(a) times a Mills ratio, and both have logarithms
    that neither overflow nor cancel, for every noise multiplier of `PrivacyConfig`.
    """
    mu = math.sqrt(releases) / noise_multiplier

    def excess(a: float) -> float:
        """Logarithm of delta(epsilon) / delta, which grows with a."""
        first, second = float(log_ndtr(a)), math.log(erfcx((mu - a) / math.sqrt(2.0)) / 2.0) - a * a / 2.0
        return first + math.log(-math.expm1(min(second - first, -1e-300))) - math.log(delta)

    highest = min(mu / 2.0, CERTAIN)
    if not releases or excess(highest) <= 0.0:
        return 0.0
    return float(mu * (mu / 2.0 - brentq(excess, ndtri(delta) - 1.0, highest)))


def secret_normal(size: int) -> Floats:
    """Standard normal numbers of the operating system's cryptographic generator, float64 (size,).

    Of 64 random bits, one is the sign and 63 are a probability, whose quantile is the size: at most 9.2.
    """
    drawn = np.frombuffer(os.urandom(8 * size), np.int64).astype(np.float64)
    quantiles: Floats = ndtri((np.abs(drawn) + 0.5) * 2.0**-64)
    return np.copysign(quantiles, drawn)


class Privacy:
    """Gaussian mechanism of a run and its accountant.

    Parameters
    ----------
    releases : count of the aggregates that were released
    normal : size -> standard normal numbers, float64 (size,)
    """

    def __init__(
        self, config: PrivacyConfig, releases: Releases, normal: Callable[[int], Floats] = secret_normal
    ) -> None:
        self._config, self._releases, self._normal = config, releases, normal

    def protect(self, updates: Sequence[Update]) -> tuple[Floats, Floats]:
        """The mean of r >= 1 clipped updates with noise, float64 (N,), and the weight of each in it, float64 (r,).

        Raises RecordError if the release cannot be counted. Then nothing is released.
        """
        self._releases.add(self._config.dp_noise_multiplier)
        clip, count = self._config.dp_clip_norm, len(updates)
        shares = np.array([clip / max(update.norm(), clip) for update in updates])
        aggregate = self._config.dp_noise_multiplier * clip / count * self._normal(updates[0].size)
        aggregate += weighted_sum(updates, shares.tolist(), precise=True) / count
        return aggregate, shares / count

    def epsilon(self) -> float:
        """Privacy loss epsilon of the releases so far, at `dp-delta`; at least 0."""
        return exact_epsilon(self._config.dp_noise_multiplier, self._releases.count, self._config.dp_delta)

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
            "does not protect: choose a 'model' without statistics and such buffers."
        )
