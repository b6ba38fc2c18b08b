"""Settings of security: simulated attacks, differential privacy, secure sums and label counts."""

from dataclasses import dataclass

from fedsel_app.config.run import RunConfig
from fedsel_app.config.settings import ReadBy, Settings, having, meanings, require, setting, unless
from fedsel_app.seeds import Purpose, stream


@dataclass(frozen=True, kw_only=True)
class AttackTraits:
    """Attack: what an attacking client does.

    Attributes
    ----------
    meaning : what the attackers train on, or send; u is the attacker's own update
    strength : s, the factor in what they send; 0: it has none
    poisons : it changes the examples of the attackers' training
    knows : the attackers agree on one vector, which they compute from the updates that they know
    """

    meaning: str
    strength: float = 0.0
    poisons: bool = False
    knows: bool = False

    @property
    def lies(self) -> bool:
        """True if the attackers send another update than the one that they trained."""
        return bool(self.strength) or self.knows


ATTACKS = {
    "none": AttackTraits(meaning="no client attacks"),
    "label-flip": AttackTraits(meaning="training on flipped labels: C - 1 - y of C classes", poisons=True),
    "sign-flip": AttackTraits(meaning="-u", strength=1.0),
    "scaled": AttackTraits(meaning="10 u", strength=10.0),
    "random": AttackTraits(meaning="normal noise, with the root mean square of u", strength=1.0),
    "ipm": AttackTraits(
        meaning="inner product manipulation: -3 times the mean of the known updates", strength=3.0, knows=True
    ),
    "alie": AttackTraits(
        meaning="A Little Is Enough: the known updates' mean minus their standard deviation", strength=1.0, knows=True
    ),
    "min-max": AttackTraits(
        meaning="the known updates' mean minus as many deviations as keep it no further from any of them than they are"
        " from one another",
        knows=True,
    ),
    "backdoor": AttackTraits(
        meaning="10 u; half of each mini-batch gets bright corners and the label 0", strength=10.0, poisons=True
    ),
}
"""Values of the setting `attack`. `strategies.round.replies.attacks` cites their papers."""
BACKDOOR_TARGET = 0
"""Class that the backdoor gives to images with bright corners."""
ATTACKED: ReadBy = {"attack": unless("none")}


@dataclass(frozen=True)
class AttackConfig(Settings, scope="task"):
    """Attacks: the hostile clients of a simulation. A deployment refuses them."""

    attack: str = setting("none", "what the hostile clients of a simulation do", choices=meanings(ATTACKS))
    attackers: str = setting(
        "0.2",
        "the hostile clients: a share of all, drawn from the seed, such as 0.2, or partition ids, such as 4 or 4,9",
        read_by=ATTACKED,
    )
    attack_knowledge: str = setting(
        "honest",
        "the updates that the attackers know",
        choices={
            "honest": "those of the round's honest clients",
            "own": "those that the attackers would send if they were honest",
        },
        read_by={"attack": having(ATTACKS, lambda attack: attack.knows)},
    )
    attack_from: int = setting(1, "first round of the attack", low=1, read_by=ATTACKED)
    attack_until: int = setting(0, "last round of the attack; 0: that of the run", low=0, read_by=ATTACKED)

    def __post_init__(self) -> None:
        super().__post_init__()
        share, ids = self.share, self.ids
        valid = 0.0 <= share <= 1.0 if ids is None else ids == sorted(set(ids))
        needed = "a share from 0.0 to 1.0, or ascending partition ids such as 4,9"
        require(valid, "attackers", needed, self.attackers)

    @property
    def traits(self) -> AttackTraits:
        """Traits of the attack."""
        return ATTACKS[self.attack]

    @property
    def ids(self) -> list[int] | None:
        """Partition ids of the attackers; None if they are drawn."""
        named = [part.strip() for part in self.attackers.split(",")]
        return list(map(int, named)) if all(map(str.isdecimal, named)) else None

    @property
    def share(self) -> float:
        """Share of the clients that attack, if they are drawn; NaN if it is no number."""
        try:
            return float(self.attackers)
        except ValueError:
            return float("nan")

    def attackers_in(self, server_round: int, run: RunConfig) -> frozenset[int]:
        """Partition ids of the clients that attack in a round of `run`.

        A share is that of all K clients, rounded, and drawn once for a run.
        """
        if self.attack == "none" or not self.attack_from <= server_round <= (self.attack_until or server_round):
            return frozenset()
        if (ids := self.ids) is not None:
            return frozenset(ids)
        count = round(self.share * run.clients)
        return frozenset(stream(run.seed, Purpose.ATTACK).choice(run.clients, count, replace=False).tolist())


@dataclass(frozen=True)
class PrivacyConfig(Settings, private=True):
    """Privacy of the clients: differential privacy, secure sums, and the sharing of label counts."""

    dp_clip_norm: float = setting(
        0.0, "norm to which each update is clipped for differential privacy; 0 switches it off", low=0.0
    )
    dp_noise_multiplier: float = setting(
        1.0,
        "standard deviation of the noise of differential privacy, in multiples of dp-clip-norm",
        low=1e-100,
        high=1e100,
        read_by={"dp-clip-norm": unless(0.0)},
    )
    dp_delta: float = setting(
        1e-5, "delta at which the run reports its epsilon", above=0.0, below=1.0, read_by={"dp-clip-norm": unless(0.0)}
    )
    secure_sums: str = setting(
        "none",
        "what the server of a deployment learns of the updates of a round",
        choices={
            "none": "each update",
            "masks": "their sum alone: clients mask what they send, and the masks cancel (docs/security.md). A client"
            " whose owner sets this sends no update without a mask",
        },
        first=True,
        owner="may",
        private=("none",),
    )
    least_cohort: int = setting(
        3,
        "least number of clients in a secure sum; each client's owner may ask for more",
        low=3,
        owner="may",
        read_by={"secure-sums": unless("none")},
    )
    clear_number: str = setting(
        "none",
        "the one number of its update that a client tells beside a secure sum, for methods that select by it",
        choices={"none": "none", "norm": "its norm"},
        owner="may",
        read_by={"secure-sums": unless("none")},
    )
    share_label_counts: bool = setting(
        True, "clients report their number of examples of each class, to methods that need it", owner="may"
    )
    least_update_examples: int = setting(
        0,
        "least number of examples behind an answer: a client trains, calibrates and tests a model on no fewer,"
        " in however many steps. An update after one step on one example is that example",
        low=0,
        private=True,
        owner="may",
    )
    share_moments: bool = setting(
        True,
        "clients with data of their own report sums over their examples, for the normalisation and for what takes the"
        " place of a gap, if the server does not state these. Never with differential privacy or a robust aggregation",
        private=True,
        owner="may",
    )

    @property
    def masked(self) -> bool:
        """True if the server of a deployment learns only sums of updates."""
        return self.secure_sums == "masks"
