"""Environment variables of a process that runs fedsel, for those that nobody has set."""

import os

DEFAULTS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # OpenMP's threads wait awake for some 20 microseconds, not for milliseconds in which others may need the core.
    "GOMP_SPINCOUNT": "1000",
}


def set_defaults() -> None:
    """Set the variables before Flower and torch are imported, which read them then."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
