"""The client set-up that the tests of this folder take."""

import pytest

from clients.client import ClientContext
from clients.state import StateStore
from fedsel_app.config import CompressionConfig, DataConfig, PartitionConfig, TrainingConfig
from tests.support.client_messages import CLIENTS, RUN


@pytest.fixture
def context(tmp_path):
    return ClientContext(
        client=2,
        clients=CLIENTS,
        run=RUN,
        data=DataConfig(),
        partition=PartitionConfig(),
        training=TrainingConfig(local_steps=4, batch_size=16),
        compression=CompressionConfig(curvature_layers=0),
        store=StateStore(tmp_path),
    )
