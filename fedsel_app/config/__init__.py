"""Settings: groups of typed settings, a file for each reader, checked when they are built, and users' own code by name.

Every setting has one flat key, the same for ``fedsel run``, ``flwr run`` and ``fedsel deploy``: the field's name with
dashes instead of underscores (``local-steps``). If the setting belongs to a method, the method's name comes first
(``hetero-select.diversity-weight``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedsel_app.config.settings import (
    ConfigError,
    Entry,
    Settings,
    Value,
    refuse_unknown,
    require,
    setting,
    unless,
)

if TYPE_CHECKING:
    from fedsel_app.config.attack import AttackConfig
    from fedsel_app.config.compression import BudgetConfig, CompressionConfig, ResidualConfig
    from fedsel_app.config.data import DataConfig, PartitionConfig, PreprocessingConfig
    from fedsel_app.config.execution import ExecutionConfig
    from fedsel_app.config.network import AvailabilityConfig, EnrolmentConfig, NetworkConfig, ReplyConfig
    from fedsel_app.config.participation import ISPConfig, ParticipationConfig, SearchLossConfig
    from fedsel_app.config.privacy import PrivacyConfig
    from fedsel_app.config.run import EvaluationConfig, RecordConfig, RunConfig
    from fedsel_app.config.server import (
        AggregationConfig,
        CalibrationConfig,
        ReportedValueConfig,
        ServerOptimizerConfig,
        WaitingConfig,
    )
    from fedsel_app.config.shared import DECLARED, GROUPS, SharedSettings, changes_numbers, read_groups
    from fedsel_app.config.training import TaskConfig, TrainingConfig

__all__ = [
    "DECLARED",
    "GROUPS",
    "AggregationConfig",
    "AttackConfig",
    "AvailabilityConfig",
    "BudgetConfig",
    "CalibrationConfig",
    "CompressionConfig",
    "ConfigError",
    "DataConfig",
    "EnrolmentConfig",
    "Entry",
    "EvaluationConfig",
    "ExecutionConfig",
    "ISPConfig",
    "NetworkConfig",
    "ParticipationConfig",
    "PartitionConfig",
    "PreprocessingConfig",
    "PrivacyConfig",
    "RecordConfig",
    "ReplyConfig",
    "ReportedValueConfig",
    "ResidualConfig",
    "RunConfig",
    "SearchLossConfig",
    "ServerOptimizerConfig",
    "Settings",
    "SharedSettings",
    "TaskConfig",
    "TrainingConfig",
    "Value",
    "WaitingConfig",
    "changes_numbers",
    "read_groups",
    "refuse_unknown",
    "require",
    "setting",
    "unless",
]


def __getattr__(name: str) -> Any:
    """Import the groups of settings on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fedsel_app.config.shared"), name)
