"""Central differential privacy: every update is clipped, and the server adds Gaussian noise to their mean.

H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
arXiv 1710.06963; R. C. Geyer, T. Klein, M. Nabi, arXiv 1712.07557. The round's aggregate is
(1/r) (sum_i u_i min(1, S / ||u_i||) + N(0, z^2 S^2 I)), with S = `dp-clip-norm` and z = `dp-noise-multiplier`.

Protected: whether all the data of any one client took part in the *updates*, against everybody who sees the
global models, clients included. The server sees every update and is trusted. Participation is held to be public, and a
client's update is compared with an update of zeros. The numbers that a method reads beside the updates to choose its
cohort (probed losses, reports, label counts) and the accuracies that clients report for the records get no noise and no
protection. The decoded update is clipped: a residual that a client keeps back is sent in a later round, and is counted
there.

Accounting: by opacus' accountant, T rounds of the Gaussian mechanism in each of which a client may have taken
part. Subsampling amplifies privacy only where cohorts are uniform and secret, so no such gain is taken: epsilon is too
large for `random`, and right for methods that choose the same clients again and again.

Deviation: the noise comes from the operating system's entropy and not from the run's seed, which every client knows and
could subtract it by; such a run is not bit for bit repeatable.
"""

import secrets
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, PrivacyConfig
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update, add_weighted
from strategies.roster import Floats


def clipped(weights: Floats, updates: Sequence[Update], norm: float) -> Floats:
    """Clipping: the weights (r,) with which no update counts for more than one of this norm."""
    shares = np.array([norm / max(update.norm(), norm) for update in updates])
    reduced: Floats = weights * shares
    return reduced


class Privacy:
    """Gaussian mechanism of a run and its accountant. Raises ConfigError if the accountant's library is not installed.

    Attributes
    ----------
    rounds : number of aggregates that were released
    """

    def __init__(self, config: PrivacyConfig, rng: np.random.Generator | None = None) -> None:
        try:
            self._accountants: Any = import_module("opacus.accountants")
        except ImportError as error:
            raise ConfigError(
                "The 'dp-clip-norm' parameter needs the package opacus, whose accountant says what privacy is left: "
                "pip install 'fedsel[privacy]', or set it to 0."
            ) from error
        self._config = config
        self._rng = stream(secrets.randbits(128), Purpose.PRIVACY) if rng is None else rng
        self.rounds = 0

    def protect(self, updates: Sequence[Update]) -> tuple[Floats, Floats]:
        """The noised mean of r >= 1 clipped updates, float64 (N,), and the weight of each in it, float64 (r,)."""
        clip, count = self._config.dp_clip_norm, len(updates)
        weights = clipped(np.full(count, 1.0 / count), updates, clip)
        aggregate = self._rng.normal(0.0, self._config.dp_noise_multiplier * clip / count, updates[0].size)
        add_weighted(aggregate, updates, weights.tolist())
        self.rounds += 1
        return aggregate, weights

    def epsilon(self) -> float:
        """Privacy loss epsilon of the rounds so far, at `dp-delta`."""
        accountant = self._accountants.RDPAccountant()
        accountant.history = [(self._config.dp_noise_multiplier, 1.0, self.rounds)]
        return float(accountant.get_epsilon(self._config.dp_delta)) if self.rounds else 0.0

    def state(self) -> dict[str, NDArray[Any]]:
        """The number of released aggregates."""
        return {"rounds": np.array(self.rounds)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state that `state` returned."""
        self.rounds = int(state["rounds"])


def refuse_statistics(config: PrivacyConfig, buffers: int) -> None:
    """Raise ConfigError for a model whose BatchNorm statistics would be released without noise."""
    if config.dp_clip_norm and buffers:
        raise ConfigError(
            "The model has BatchNorm statistics, which clients measure and 'dp-clip-norm' does not protect: choose a "
            "'model' without them."
        )
