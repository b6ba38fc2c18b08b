"""Settings: groups of typed settings, a file for each reader, checked when they are built, and users' own code by name.

Every setting has one flat key, the same for ``fedsel run``, ``flwr run`` and ``fedsel deploy``: the field's name with
dashes instead of underscores (``local-steps``). If the setting belongs to a method, the method's name comes first
(``hetero-select.diversity-weight``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedsel_app.config.settings import ConfigError as ConfigError
from fedsel_app.config.settings import Entry as Entry
from fedsel_app.config.settings import Settings as Settings
from fedsel_app.config.settings import Value as Value
from fedsel_app.config.settings import refuse_unknown as refuse_unknown
from fedsel_app.config.settings import require as require
from fedsel_app.config.settings import setting as setting
from fedsel_app.config.settings import unless as unless

if TYPE_CHECKING:
    from fedsel_app.config.compression import BudgetConfig as BudgetConfig
    from fedsel_app.config.compression import CompressionConfig as CompressionConfig
    from fedsel_app.config.compression import ResidualConfig as ResidualConfig
    from fedsel_app.config.data import DataConfig as DataConfig
    from fedsel_app.config.data import PartitionConfig as PartitionConfig
    from fedsel_app.config.data import PreprocessingConfig as PreprocessingConfig
    from fedsel_app.config.network import AvailabilityConfig as AvailabilityConfig
    from fedsel_app.config.network import EnrolmentConfig as EnrolmentConfig
    from fedsel_app.config.network import NetworkConfig as NetworkConfig
    from fedsel_app.config.network import ReplyConfig as ReplyConfig
    from fedsel_app.config.participation import ISPConfig as ISPConfig
    from fedsel_app.config.participation import ParticipationConfig as ParticipationConfig
    from fedsel_app.config.participation import SearchLossConfig as SearchLossConfig
    from fedsel_app.config.run import EvaluationConfig as EvaluationConfig
    from fedsel_app.config.run import ExecutionConfig as ExecutionConfig
    from fedsel_app.config.run import RecordConfig as RecordConfig
    from fedsel_app.config.run import RunConfig as RunConfig
    from fedsel_app.config.security import AttackConfig as AttackConfig
    from fedsel_app.config.security import PrivacyConfig as PrivacyConfig
    from fedsel_app.config.server import AggregationConfig as AggregationConfig
    from fedsel_app.config.server import CalibrationConfig as CalibrationConfig
    from fedsel_app.config.server import ReportedValueConfig as ReportedValueConfig
    from fedsel_app.config.server import ServerOptimizerConfig as ServerOptimizerConfig
    from fedsel_app.config.server import WaitingConfig as WaitingConfig
    from fedsel_app.config.shared import DECLARED as DECLARED
    from fedsel_app.config.shared import GROUPS as GROUPS
    from fedsel_app.config.shared import SharedSettings as SharedSettings
    from fedsel_app.config.shared import changes_numbers as changes_numbers
    from fedsel_app.config.shared import read_groups as read_groups
    from fedsel_app.config.training import TaskConfig as TaskConfig
    from fedsel_app.config.training import TrainingConfig as TrainingConfig


def __getattr__(name: str) -> Any:
    """Import the groups of settings on first use."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fedsel_app.config.shared"), name)
