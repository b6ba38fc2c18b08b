"""The client set-up that the tests of this folder take."""

import pytest

from clients.client import ClientContext
from clients.state import StateStore
from fedsel_app.config import CompressionConfig, TrainingConfig
from tests.support.client_messages import CPU, RUN


@pytest.fixture
def context(tmp_path):
    return ClientContext(
        client=2,
        run=RUN,
        execution=CPU,
        training=TrainingConfig(local_steps=4, batch_size=16),
        compression=CompressionConfig(curvature_layers=0),
        store=StateStore(tmp_path),
    )
