"""Settings of BatchNorm calibration."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class CalibrationConfig(Settings):
    """BatchNorm calibration: clients recompute the statistics of the aggregated model."""

    calibration_clients: int = setting(0, "clients that recompute BatchNorm statistics (0: all selected)", low=0)
    calibration_batches: int = setting(20, "mini-batches each of them uses", low=1)
