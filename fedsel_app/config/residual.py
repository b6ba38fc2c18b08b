"""Settings of the residual decay in error feedback."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class ResidualConfig(Settings):
    """Residual decay: the share of what was not sent that error feedback keeps from round to round."""

    residual_decay: str = setting("adaptive", "decay of what was not sent", choices=("adaptive", "static"))
    residual_decay_static: float = setting(0.9, "the static decay beta", low=0.0, high=1.0)
    residual_decay_min: float = setting(0.85, "adaptive decay beta at kept fraction 1", low=0.0, high=1.0)
    residual_decay_max: float = setting(0.97, "adaptive decay beta at kept fraction 0", low=0.0, high=1.0)

    def beta(self, kept_fraction: float) -> float:
        """Residual decay of a round whose average kept fraction is theta_t (paper: Eq. 9)."""
        if self.residual_decay == "static":
            return self.residual_decay_static
        return self.residual_decay_min + (self.residual_decay_max - self.residual_decay_min) * (1.0 - kept_fraction)
