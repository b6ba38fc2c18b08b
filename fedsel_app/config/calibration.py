"""Settings of BatchNorm calibration."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class CalibrationConfig(Settings):
    """BatchNorm calibration: clients recompute the statistics of the aggregated model."""

    calibration_clients: int = setting(0, "clients that recompute BatchNorm statistics (0: all selected)", low=0)
    calibration_batches: int = setting(20, "mini-batches each of them uses; in sequential all of them together", low=1)
    calibration_form: str = setting(
        "average",
        "clients side by side, their statistics averaged by examples; or one after the other on the same statistics,"
        " each as many mini-batches as it has examples for (HeteRo-Select's code)",
        choices=("average", "sequential"),
    )
