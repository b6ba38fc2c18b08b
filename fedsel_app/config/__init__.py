"""Settings: groups of typed settings, one file each, checked when they are built, and users' own code by its name.

Every setting is one flat key, the same for ``fedsel run``, ``flwr run`` and ``fedsel deploy``:
the field's name with dashes for underscores (``local-steps``), and before it the method's name
where the setting belongs to one method (``hetero-select.diversity-weight``).
"""

from fedsel_app.config.aggregation import AggregationConfig
from fedsel_app.config.budget import BudgetConfig
from fedsel_app.config.calibration import CalibrationConfig
from fedsel_app.config.claims import ClaimConfig
from fedsel_app.config.compression import CompressionConfig
from fedsel_app.config.data import DataConfig
from fedsel_app.config.enrolment import EnrolmentConfig
from fedsel_app.config.evaluation import EvaluationConfig
from fedsel_app.config.execution import ExecutionConfig
from fedsel_app.config.isp import ISPConfig
from fedsel_app.config.network import NetworkConfig
from fedsel_app.config.participation import ParticipationConfig
from fedsel_app.config.partition import PartitionConfig
from fedsel_app.config.preprocessing import PreprocessingConfig
from fedsel_app.config.privacy import PrivacyConfig
from fedsel_app.config.records import RecordConfig
from fedsel_app.config.replies import ReplyConfig
from fedsel_app.config.residual import ResidualConfig
from fedsel_app.config.run import RunConfig
from fedsel_app.config.search_loss import SearchLossConfig
from fedsel_app.config.server_optimizer import ServerOptimizerConfig
from fedsel_app.config.settings import ConfigError, Settings, Value, refuse_unknown, require, setting
from fedsel_app.config.shared import GROUPS, SharedSettings, read_groups
from fedsel_app.config.task import TaskConfig
from fedsel_app.config.training import TrainingConfig

__all__ = [
    "GROUPS",
    "AggregationConfig",
    "BudgetConfig",
    "CalibrationConfig",
    "ClaimConfig",
    "CompressionConfig",
    "ConfigError",
    "DataConfig",
    "EnrolmentConfig",
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
    "ResidualConfig",
    "RunConfig",
    "SearchLossConfig",
    "ServerOptimizerConfig",
    "Settings",
    "SharedSettings",
    "TaskConfig",
    "TrainingConfig",
    "Value",
    "read_groups",
    "refuse_unknown",
    "require",
    "setting",
]
