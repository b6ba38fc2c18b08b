"""Settings of compression: compressor, precision, error feedback and curvature."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, require, setting


@dataclass(frozen=True)
class CompressionConfig(Settings):
    """Compression of the updates that clients send: compressor, precision, error feedback and curvature."""

    compressor: str = setting(
        "top-k",
        "the largest entries, random ones that the seed tells, all of them on a random grid, or all as they are",
        choices={
            "top-k": "the largest entries",
            "rand-k": "random entries, which the seed tells both sides",
            "qsgd": "all entries on a random grid of qsgd-levels levels",
            "none": "all entries as they are",
        },
    )
    value_bits: int = setting(
        32,
        "bits of each value that is sent: 32 (float32), 16 (float16), 8 or 4; error feedback takes up the rounding,"
        " and without it 8 and 4 bits are rounded at random; qsgd-levels says it for qsgd",
        low=4,
        high=32,
    )
    top_k_scope: str = setting(
        "global", "the kept fraction holds over the model, or in each layer", choices=("global", "layer")
    )
    qsgd_levels: int = setting(16, "levels s of qsgd", low=1, high=32767)
    qsgd_bucket: int = setting(128, "entries that share a norm in qsgd", low=1)
    error_feedback: bool = setting(True, "keep what was not sent and add it to the next update")
    error_feedback_scheme: str = setting(
        "ef14",
        "ef14 adds what was not sent to the next update; ef21 sends the change of an estimate that both sides keep",
        choices=("ef14", "ef21"),
    )
    kept_rounding: str = setting(
        "ceil", "kept entries: ceil(theta N) or max(1, floor(theta N))", choices=("ceil", "floor")
    )
    curvature_layers: int = setting(
        3, "layers a round whose entries are scored by v^2 / |H| (0: magnitude only)", low=0
    )
    curvature_scale: str = setting(
        "literal", "|H| as it is, or divided by its layer's mean", choices=("literal", "layer-mean")
    )
    curvature_floor: float = setting(1e-6, "smallest |H| (literal: |H| is clamped there)", above=0.0)
    curvature_batch: str = setting(
        "plain",
        "mini-batch of the curvature probe: as it is, in eval mode; or augmented, in train mode (HeteRo-Select's code)",
        choices=("plain", "training"),
    )
    curvature_signs: str = setting(
        "chosen",
        "layers on which the curvature probe has signs: those it is drawn for, or all (HeteRo-Select's code)",
        choices=("chosen", "all"),
    )
    curvature_explore: float = setting(0.2, "share of the layer draw that is uniform", low=0.0, high=1.0)
    layer_importance: str = setting(
        "mask-share",
        "the rest of the draw: the layer's share of the last mask, or the share of the layer that was kept",
        choices=("mask-share", "kept-share"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.value_bits in (32, 16, 8, 4), "value-bits", "32, 16, 8 or 4", self.value_bits)

    @property
    def lossless(self) -> bool:
        """True where the update is sent as it is."""
        return self.compressor == "none" and self.value_bits == 32

    @property
    def sparsifies(self) -> bool:
        """True where the kept fraction sets how much is sent."""
        return self.compressor in ("top-k", "rand-k")

    @property
    def ef21(self) -> bool:
        """True where client and server keep an estimate of the client's update (EF21)."""
        return self.error_feedback and self.error_feedback_scheme == "ef21"

    @property
    def remembers_unsent(self) -> bool:
        """True where the residual, what was not sent, is added to the next update."""
        return self.error_feedback and not self.ef21 and not self.lossless
