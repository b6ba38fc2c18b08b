"""Shared settings: all groups of settings that do not belong to one method, listed here and nowhere else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

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
from fedsel_app.config.settings import Settings, Value
from fedsel_app.config.task import TaskConfig
from fedsel_app.config.training import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """Groups of settings that all methods share, in the order in which `fedsel settings` prints them."""

    run: RunConfig = field(default_factory=RunConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    data: DataConfig = field(default_factory=DataConfig)
    preprocessing: PreprocessingConfig = field(default_factory=PreprocessingConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    compression: CompressionConfig = field(default_factory=CompressionConfig)
    residual: ResidualConfig = field(default_factory=ResidualConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    aggregation: AggregationConfig = field(default_factory=AggregationConfig)
    claims: ClaimConfig = field(default_factory=ClaimConfig)
    server_optimizer: ServerOptimizerConfig = field(default_factory=ServerOptimizerConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    participation: ParticipationConfig = field(default_factory=ParticipationConfig)
    isp: ISPConfig = field(default_factory=ISPConfig)
    search_loss: SearchLossConfig = field(default_factory=SearchLossConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    enrolment: EnrolmentConfig = field(default_factory=EnrolmentConfig)
    replies: ReplyConfig = field(default_factory=ReplyConfig)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    records: RecordConfig = field(default_factory=RecordConfig)

    def groups(self) -> dict[str, Any]:
        """Field name -> group, to build another class of shared settings from the same ones."""
        return {name: getattr(self, name) for name in GROUPS}


GROUPS: dict[str, type[Settings]] = get_type_hints(SharedSettings)
"""Field name -> class of each group, in the order of `SharedSettings`."""


def read_groups(values: Mapping[str, Value]) -> dict[str, Any]:
    """Field name -> group of the flat `values`; absent keys keep their defaults, keys of no group are left alone.

    Raises
    ------
    ConfigError
        For a value of the wrong type or out of range.
    """
    return {name: group.from_values(values) for name, group in GROUPS.items()}
