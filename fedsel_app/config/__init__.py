"""Settings: groups of typed settings, one file each, checked when they are built, and users' own code by its name.

Every setting is one flat key, the same for ``fedsel run``, ``flwr run`` and ``fedsel deploy``:
the field's name with dashes for underscores (``local-steps``), and before it the method's name
where the setting belongs to one method (``hetero-select.diversity-weight``).
"""

from fedsel_app.config.budget import BudgetConfig
from fedsel_app.config.compression import CompressionConfig
from fedsel_app.config.data import DataConfig
from fedsel_app.config.network import NetworkConfig
from fedsel_app.config.participation import ParticipationConfig
from fedsel_app.config.partition import PartitionConfig
from fedsel_app.config.run import RunConfig
from fedsel_app.config.server import ServerConfig
from fedsel_app.config.settings import ConfigError, Settings, Value, refuse_unknown, require, setting
from fedsel_app.config.training import TrainingConfig

__all__ = [
    "BudgetConfig",
    "CompressionConfig",
    "ConfigError",
    "DataConfig",
    "NetworkConfig",
    "ParticipationConfig",
    "PartitionConfig",
    "RunConfig",
    "ServerConfig",
    "Settings",
    "TrainingConfig",
    "Value",
    "refuse_unknown",
    "require",
    "setting",
]
