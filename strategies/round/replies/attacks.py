"""Attacks of a simulation: the updates that hostile clients send in place of those that they trained.

u is an attacker's own update as it would send it, s the strength in `ATTACKS`, and mu, sigma the mean and the standard
deviation of each entry over the known updates (`attack-knowledge`).

==============  ====================  ==================================================================================
attack          update                source
==============  ====================  ==================================================================================
sign-flip       -s u                  L. Li et al., "RSA", AAAI 2019, Sec. 5
scaled          s u                   E. Bagdasaryan et al., "How To Backdoor Federated Learning", AISTATS 2020, Eq. 3
backdoor        s u                   as scaled, after training on poisoned examples (`models.poisoning`)
random          s rms(u) N(0, I)      P. Blanchard et al., "Machine Learning with Adversaries", NeurIPS 2017, Sec. 5
ipm             -s mu                 C. Xie, O. Koyejo, I. Gupta, "Fall of Empires", UAI 2019, Sec. 3
alie            mu - s sigma          G. Baruch, M. Baruch, Y. Goldberg, "A Little Is Enough", NeurIPS 2019, Alg. 3
min-max         mu - g sigma, with    V. Shejwalkar, A. Houmansadr, "Manipulating the Byzantine", NDSS 2021, Eq. 11
                the largest g
==============  ====================  ==================================================================================

Deviations: ALIE's attackers know their own updates alone in the paper; `attack-knowledge` says what they know here, and
s replaces the z of its line 3. The last four, and random, send every entry as float32, whatever the compressor. All
others send the entries of u. Attackers keep the residual of u. Control variates and BatchNorm statistics are honest.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import SharedSettings
from fedsel_app.config.security import AttackConfig
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update, WireError, whole_bytes
from strategies.round.replies.values import refuse_large

if TYPE_CHECKING:
    from strategies.round.replies.training import Decoded, ReplyResult

Floats = NDArray[np.float64]


def inner_product(known: Floats, strength: float) -> Floats:
    """-s times the mean of the known updates, float64 (r, N)."""
    return np.asarray(-strength * known.mean(axis=0))


def alie(known: Floats, strength: float) -> Floats:
    """The mean minus s standard deviations, of the population."""
    return np.asarray(known.mean(axis=0) - strength * known.std(axis=0))


def min_max(known: Floats, strength: float) -> Floats:
    """The mean minus g deviations, with the largest g up to 50 for which no known update is further away than the two
    that are furthest apart; g by 25 bisections.
    """
    mean, deviations = known.mean(axis=0), known.std(axis=0)
    apart = max(float(np.linalg.norm(known - one, axis=1).max()) for one in known)
    low, high = 0.0, 50.0
    for _ in range(25):
        middle = (low + high) / 2
        near = np.linalg.norm(known - (mean - middle * deviations), axis=1).max() <= apart
        low, high = (middle, high) if near else (low, middle)
    return np.asarray(mean - low * deviations)


VECTORS: Mapping[str, Callable[[Floats, float], Floats]] = {"ipm": inner_product, "alie": alie, "min-max": min_max}
"""Attack -> the vector that all attackers send, of the known updates and s."""


def own_lie(update: Update, attack: AttackConfig, rng: np.random.Generator) -> Update:
    """What an attacker makes of its own update alone."""
    if attack.attack == "random":
        noise = rng.normal(size=update.size) * (attack.traits.strength * update.norm() / np.sqrt(update.size))
        return Update(update.size, None, noise.astype(update.values.dtype))
    factor = -attack.traits.strength if attack.attack == "sign-flip" else attack.traits.strength
    return replace(update, values=update.values * update.values.dtype.type(factor))


def attacked(
    results: "Mapping[int, ReplyResult]", round_of: Mapping[int, int], settings: SharedSettings
) -> "dict[int, ReplyResult]":
    """The decoded replies, in which the attackers send their lies. If they know no update, they send their own.

    `round_of` has the round for which each client was asked; attackers who know updates know those of one round.
    """
    attack, result = settings.attack, dict(results)
    attackers_in = {number: attack.attackers_in(number, settings.run) for number in set(round_of.values())}
    replies: dict[int, Decoded] = {client: one for client, one in results.items() if not isinstance(one, WireError)}
    liars = [client for client in replies if client in attackers_in[round_of[client]]]
    shared: NDArray[Any] | None = None
    if attack.traits.knows and liars:
        knowing = liars if attack.attack_knowledge == "own" else replies.keys() - liars
        if not knowing:
            return result
        updates = np.stack([replies[client].payloads[0].dense() for client in sorted(knowing)]).astype(np.float64)
        shared = VECTORS[attack.attack](updates, attack.traits.strength)
    for client in liars:
        own, *others = replies[client].payloads
        if shared is None:
            lie = own_lie(own, attack, stream(settings.run.seed, Purpose.ATTACK, round_of[client], client))
        else:
            lie = Update(own.size, None, shared.astype(own.values.dtype))
        sizes = sum(map(whole_bytes, (lie, *others))) if lie.indices is None else replies[client].sent_bytes
        try:
            refuse_large(lie.norm())
            result[client] = replies[client]._replace(payloads=(lie, *others), sent_bytes=sizes)
        except WireError as error:
            result[client] = error
    return result
