"""Settings of the global model's BatchNorm statistics."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class CalibrationConfig(Settings):
    """BatchNorm calibration: clients recompute the aggregated model's statistics, or those of training are averaged."""

    calibration_clients: int = setting(0, "clients that recompute BatchNorm statistics (0: all selected)", low=0)
    calibration_batches: int = setting(20, "mini-batches each of them uses; in sequential all of them together", low=1)
    calibration_form: str = setting(
        "average",
        "clients side by side, their statistics averaged by examples; or one after the other on the same statistics,"
        " each as many mini-batches as it has examples for (HeteRo-Select's code); or none, and the statistics that"
        " local training left are averaged by examples, as where whole models are averaged (ISP's code)",
        choices=("average", "sequential", "training"),
    )

    @property
    def of_training(self) -> bool:
        """True where the statistics are those of local training, which the clients then send with their updates."""
        return self.calibration_form == "training"
