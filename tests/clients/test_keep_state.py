"""A client that is asked not to keep its state: it trains the same, and what it remembers stays, bit for bit."""

import dataclasses

import numpy as np
import pytest

from clients.client import ClientContext, SelectionClient
from clients.state import StateStore
from fedsel_app.config import CompressionConfig, ExecutionConfig, RunConfig, TrainingConfig
from fedsel_app.messages.answers import TrainAnswer
from tests.support.client_messages import SIZE, instruction

KINDS = {
    "error feedback and shares": (CompressionConfig(), TrainingConfig()),
    "ef21": (CompressionConfig(error_feedback_scheme="ef21"), TrainingConfig()),
    "rand-k": (CompressionConfig(compressor="rand-k"), TrainingConfig()),
    "qsgd": (CompressionConfig(compressor="qsgd"), TrainingConfig()),
    "scaffold": (CompressionConfig(compressor="none"), TrainingConfig(solver="scaffold")),
    "feddyn and error feedback": (CompressionConfig(), TrainingConfig(solver="feddyn")),
}


@pytest.fixture(params=KINDS)
def context(request, tmp_path):
    compression, training = KINDS[request.param]
    return ClientContext(
        client=2,
        run=RunConfig(clients=6, cohort=2, seed=3),
        execution=ExecutionConfig(device="cpu"),
        training=dataclasses.replace(training, local_steps=3, batch_size=16),
        compression=compression,
        store=StateStore(tmp_path),
    )


def train(context, server_round, **fields):
    arrays = [np.zeros(SIZE, np.float32)] * (2 if context.training.solver == "scaffold" else 1)
    config = instruction(server_round, curvature=True, estimated=server_round > 1, **fields)
    payloads, _, metrics = SelectionClient(context).fit(arrays, config)
    return [payload.tobytes() for payload in payloads], TrainAnswer.from_metrics(metrics).loss


def remembered(context):
    return {path.name: path.read_bytes() for path in context.store.folder.rglob("*.npz")}


def test_what_it_remembers_stays_and_what_it_sends_is_what_it_would_send(context):
    for server_round in (1, 2):
        before = remembered(context)
        assert bool(before) == (server_round > 1)
        tried = train(context, server_round, keep_state=False)
        assert remembered(context) == before
        assert train(context, server_round, keep_state=False) == tried
        assert train(context, server_round) == tried
        assert remembered(context) != before
