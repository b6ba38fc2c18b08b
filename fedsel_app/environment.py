"""Default environment variables of a process that runs fedsel."""

import os

DEFAULTS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # OpenMP's threads spin for some 20 microseconds, not for milliseconds in which other processes may need the core.
    "GOMP_SPINCOUNT": "1000",
}


def set_defaults() -> None:
    """Set the variables that are not set yet. Flower and torch read them when they are imported."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
