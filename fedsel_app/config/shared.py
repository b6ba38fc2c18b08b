"""Groups of settings that all methods share, and each of their settings by its key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from fedsel_app.config.compression import BudgetConfig, CompressionConfig, ResidualConfig
from fedsel_app.config.data import DataConfig, PartitionConfig, PreprocessingConfig
from fedsel_app.config.network import AvailabilityConfig, EnrolmentConfig, NetworkConfig, ReplyConfig
from fedsel_app.config.participation import ISPConfig, ParticipationConfig, SearchLossConfig
from fedsel_app.config.run import EvaluationConfig, ExecutionConfig, RecordConfig, RunConfig
from fedsel_app.config.security import AttackConfig, PrivacyConfig
from fedsel_app.config.server import (
    AggregationConfig,
    CalibrationConfig,
    ReportedValueConfig,
    ServerOptimizerConfig,
    WaitingConfig,
)
from fedsel_app.config.settings import Entry, Settings, Value
from fedsel_app.config.training import TaskConfig, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """Groups of settings that all methods share, in the order in which `fedsel settings` prints them."""

    run: RunConfig = field(default_factory=RunConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    data: DataConfig = field(default_factory=DataConfig)
    preprocessing: PreprocessingConfig = field(default_factory=PreprocessingConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    attack: AttackConfig = field(default_factory=AttackConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    compression: CompressionConfig = field(default_factory=CompressionConfig)
    residual: ResidualConfig = field(default_factory=ResidualConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    aggregation: AggregationConfig = field(default_factory=AggregationConfig)
    reported_values: ReportedValueConfig = field(default_factory=ReportedValueConfig)
    server_optimizer: ServerOptimizerConfig = field(default_factory=ServerOptimizerConfig)
    waiting: WaitingConfig = field(default_factory=WaitingConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    participation: ParticipationConfig = field(default_factory=ParticipationConfig)
    isp: ISPConfig = field(default_factory=ISPConfig)
    search_loss: SearchLossConfig = field(default_factory=SearchLossConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    availability: AvailabilityConfig = field(default_factory=AvailabilityConfig)
    enrolment: EnrolmentConfig = field(default_factory=EnrolmentConfig)
    replies: ReplyConfig = field(default_factory=ReplyConfig)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    records: RecordConfig = field(default_factory=RecordConfig)

    def groups(self) -> dict[str, Any]:
        """Field name -> group, to build another class of shared settings from the same ones."""
        return {name: getattr(self, name) for name in GROUPS}


GROUPS: dict[str, type[Settings]] = get_type_hints(SharedSettings)
"""Field name -> class of each group, in the order of `SharedSettings`."""
DECLARED: Mapping[str, Entry] = {entry.key: entry for group in GROUPS.values() for entry in group.entries()}
"""Key -> declaration of each setting that all methods share, in the same order."""


def changes_numbers(key: str) -> bool:
    """True unless the setting only says where a run takes place, how fast, and how long it waits."""
    return key not in DECLARED or DECLARED[key].scope.numbers


def read_groups(values: Mapping[str, Value]) -> dict[str, Any]:
    """Field name -> group from the flat `values`. Absent keys keep their defaults; other keys are ignored.

    Raises ConfigError for a value of the wrong type or out of range.
    """
    return {name: group.from_values(values) for name, group in GROUPS.items()}
