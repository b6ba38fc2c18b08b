"""Settings of compression: the compressor, the residual of error feedback, and the kept fractions."""

from dataclasses import dataclass

from fedsel_app.config.settings import ReadBy, Settings, having, meanings, require, setting, unless


@dataclass(frozen=True, kw_only=True)
class CompressorTraits:
    """Compressor: which entries of an update a client sends, and how.

    Attributes
    ----------
    meaning : what it sends
    strength : key of the setting that says how much it sends; empty: it sends all entries as they are
    sparse : the kept fraction determines the number of entries that are sent
    seeded : the server knows the positions of the entries, from the seed or its own statement, so that clients do not
        send them
    common : all clients of a round send the same entries, so that no client has a kept fraction of its own
    rounded_by : key of the setting by which it rounds the values itself, in place of `value-bits`; empty: it does not
    """

    meaning: str
    strength: str = ""
    sparse: bool = False
    seeded: bool = False
    common: bool = False
    rounded_by: str = ""

    @property
    def lossless(self) -> bool:
        """True if it sends all entries as they are."""
        return not self.strength


COMPRESSORS = {
    "top-k": CompressorTraits(meaning="the entries of the largest magnitude", strength="kept-fraction", sparse=True),
    "rand-k": CompressorTraits(
        meaning="random entries, which both sides draw from the seed",
        strength="kept-fraction",
        sparse=True,
        seeded=True,
    ),
    "common-k": CompressorTraits(
        meaning="the same entries from all clients of a round, which the server states: random ones and those that its"
        " aggregate lacks most; rounded to whole numbers, whose sums stay within ring-bits",
        strength="kept-fraction",
        sparse=True,
        seeded=True,
        common=True,
        rounded_by="ring-bits",
    ),
    "qsgd": CompressorTraits(
        meaning="all entries, rounded at random to qsgd-levels levels", strength="qsgd-levels", rounded_by="qsgd-levels"
    ),
    "none": CompressorTraits(meaning="all entries"),
}
"""Values of the setting `compressor`."""

ADAPTIVE_MIN, ADAPTIVE_MAX = 0.85, 0.97
"""Adaptive residual decay at the kept fractions 1 and 0 (HeteRo-Select, Sec. V-D)."""
LOSSY: tuple[ReadBy, ...] = (
    {"compressor": unless(*having(COMPRESSORS, lambda compressor: compressor.lossless))},
    {"value-bits": unless(32)},
)
FEEDBACK = tuple(lossy | {"error-feedback": (True,)} for lossy in LOSSY)
RESIDUAL = tuple(feedback | {"error-feedback-scheme": ("ef14",)} for feedback in FEEDBACK)
SPARSE: ReadBy = {"compressor": having(COMPRESSORS, lambda compressor: compressor.sparse)}
OWN_FRACTIONS: ReadBy = {
    "compressor": having(COMPRESSORS, lambda compressor: compressor.sparse and not compressor.common)
}
COMMON: ReadBy = {"compressor": having(COMPRESSORS, lambda compressor: compressor.common)}
"""Conditions with which settings of these groups are read: see `setting`."""


@dataclass(frozen=True)
class CompressionConfig(Settings, scope="wire", private=True):
    """Compression of client updates: compressor, precision, error feedback and curvature."""

    compressor: str = setting(
        "top-k",
        "which entries of an update a client sends, and how",
        choices=meanings(COMPRESSORS),
        first=True,
        private=having(COMPRESSORS, lambda compressor: not compressor.common),
    )
    value_bits: int = setting(
        32,
        "bits of each value that is sent: 32 (float32), 16 (float16), 8 or 4. Error feedback keeps the rounding error;"
        " without it 8 and 4 bits are rounded at random. The compressor qsgd takes qsgd-levels instead",
        low=4,
        high=32,
        first=True,
    )
    qsgd_levels: int = setting(
        16, "number of levels s of the compressor qsgd", low=1, high=32767, read_by={"compressor": ("qsgd",)}
    )
    ring_bits: int = setting(
        16,
        "bits of each value of common-k: 6, 8, 16, 24 or 32. A value is a whole number of at most (2^(bits - 1) - 1)"
        " / n steps, where n is the greatest number of clients in a round, and error feedback keeps what is beyond",
        low=6,
        high=32,
        read_by=COMMON,
        private=(16,),
    )
    error_feedback: bool = setting(
        True,
        "keeps what was not sent, the residual, and adds it to the next update of the client",
        first=True,
        read_by=LOSSY,
    )
    error_feedback_scheme: str = setting(
        "ef14",
        "form of error feedback",
        choices={
            "ef14": "adds the residual to the next update",
            "ef21": "sends the change of an estimate of the update that client and server both keep",
        },
        read_by=FEEDBACK,
    )
    curvature_layers: int = setting(
        3,
        "number of layers in a round whose entries are scored by v^2 / |H|, with the curvature H; all other layers are"
        " scored by magnitude, and 0 scores every layer so",
        low=0,
        read_by={"compressor": ("top-k",)},
    )
    details: str = setting(
        "text",
        "details in which HeteRo-Select's text and its authors' code differ",
        choices={
            "text": "mini-batches may extend into the next pass; probes measure unchanged examples; a client keeps"
            " ceil(theta N) entries, at least 1%; the cosine of the kept fraction starts in round 1; the curvature"
            " draws signs on its layers, and these by their share of all kept entries",
            "code": "the last mini-batch of a pass may be smaller, and a loss probe ends with the pass; probes measure"
            " augmented examples; a client keeps floor(theta N) entries, at least 0.5%; the cosine starts after the"
            " warm-up; the curvature draws signs on all layers, and layers by the share of their own entries",
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.value_bits in (32, 16, 8, 4), "value-bits", "32, 16, 8 or 4", self.value_bits)
        require(self.ring_bits in (6, 8, 16, 24, 32), "ring-bits", "6, 8, 16, 24 or 32", self.ring_bits)

    @property
    def traits(self) -> CompressorTraits:
        """Traits of the compressor."""
        return COMPRESSORS[self.compressor]

    @property
    def as_coded(self) -> bool:
        """True if the details are those of HeteRo-Select's authors' code."""
        return self.details == "code"

    @property
    def kept_min(self) -> float:
        """Smallest kept fraction of a client, theta_min: the text does not state it."""
        return 0.005 if self.as_coded else 0.01

    @property
    def lossless(self) -> bool:
        """True if the update is sent without loss."""
        return self.traits.lossless and self.value_bits == 32

    @property
    def sparsifies(self) -> bool:
        """True if the kept fraction determines the number of entries that are sent."""
        return self.traits.sparse

    @property
    def own_fractions(self) -> bool:
        """True if each client may send a number of entries of its own."""
        return self.traits.sparse and not self.traits.common

    @property
    def ef21(self) -> bool:
        """True if client and server keep an estimate of the client's update (EF21)."""
        return self.error_feedback and self.error_feedback_scheme == "ef21"

    @property
    def remembers_unsent(self) -> bool:
        """True if the residual (what was not sent) is added to the next update."""
        return self.error_feedback and not self.ef21 and not self.lossless


@dataclass(frozen=True)
class ResidualConfig(Settings, scope="wire", read_by=RESIDUAL, private=True):
    """Residual decay: the share of the residual that error feedback keeps from round to round."""

    residual_decay: str = setting(
        "adaptive",
        "factor beta on the residual in each round",
        choices={
            "adaptive": "from 0.85, if everything is sent, to 0.97, larger the less is sent",
            "static": "residual-decay-static",
        },
    )
    residual_decay_static: float = setting(
        0.9, "factor of the static decay", low=0.0, high=1.0, read_by={"residual-decay": ("static",)}
    )

    def beta(self, kept_fraction: float) -> float:
        """Residual decay of a round whose average kept fraction is theta_t (paper: Eq. 9)."""
        if self.residual_decay == "static":
            return self.residual_decay_static
        return ADAPTIVE_MIN + (ADAPTIVE_MAX - ADAPTIVE_MIN) * (1.0 - kept_fraction)


@dataclass(frozen=True)
class BudgetConfig(Settings, scope="wire", read_by=SPARSE, private=True):
    """Communication budget: the kept fraction of a round, and with top-k and rand-k that of each client."""

    kept_fraction: float = setting(
        0.2, "average share of the entries that is sent, over the run: theta_avg", above=0.0, high=1.0, first=True
    )
    kept_cosine: float = setting(
        0.4, "amplitude alpha_cos of the cosine schedule of the kept fraction; 0 keeps it constant", low=0.0, high=1.0
    )
    kept_floor: float = setting(0.08, "smallest kept fraction of a round", low=0.0, high=1.0)
    kept_warmup_rounds: int = setting(1, "number of first rounds with kept fraction 1, before the schedule", low=0)
    kept_warmup_full: bool = setting(
        True,
        "sends every entry in the warm-up rounds; false lets scores and links reduce them",
        read_by={**OWN_FRACTIONS, "kept-warmup-rounds": unless(0)},
    )
    allocation: str = setting(
        "score",
        "how the kept fraction of a round is shared among its clients",
        choices={"score": "in proportion to their scores", "uniform": "equally"},
        read_by={**OWN_FRACTIONS, "loss-clip": (0.0,)},
    )
    link_cap: str = setting(
        "transfer",
        "upper bound on what a client sends in a round",
        choices={
            "transfer": "what its link carries in the time that a mean link takes for an uncompressed update",
            "round": "what its link carries in the time of an average update and an average client's computation",
            "none": "no bound",
        },
        private=("transfer", "none"),
        read_by=OWN_FRACTIONS,
    )
