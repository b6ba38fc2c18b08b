"""The client set-up that the tests of this folder take."""

import pytest

from clients.client import ClientSetup
from clients.state import StateStore
from fedsel_app.config import CompressionConfig, TrainingConfig
from fedsel_app.data import DataConfig
from fedsel_app.partition import PartitionConfig
from tests.clients.messages import CLIENTS, RUN


@pytest.fixture
def setup(tmp_path):
    return ClientSetup(
        client=2,
        clients=CLIENTS,
        run=RUN,
        data=DataConfig(),
        partition=PartitionConfig(),
        training=TrainingConfig(local_steps=4, batch_size=16),
        compression=CompressionConfig(curvature_layers=0),
        store=StateStore(tmp_path),
    )
