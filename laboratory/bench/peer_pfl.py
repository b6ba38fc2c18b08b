"""pfl-research in bench `peers`: its FederatedAveraging and SimulatedBackend, as in its benchmarks.

`main` is called in a process of its own; it reads a `PeerRun` and writes a `PeerResult`. Of several workers each is
such a process, with pfl's PFL_WORKER_ADDRESSES and PFL_WORKER_RANK.
"""

import time
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from pfl.aggregate.base import get_num_datapoints_weight_name, get_num_devices_weight_name
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.data import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.numpy_ops import NumpySeedScope
from pfl.metrics import Metrics, Weighted, get_overall_value
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from laboratory.bench.peer_tasks import SEED, PeerResult, PeerRun, read_run, result_of, write_result


def _loss(model: nn.Module, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
    model.train(not eval)
    return functional.cross_entropy(model(x), y)


@torch.no_grad()
def _metrics(model: nn.Module, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Any]:
    return {"loss": Weighted(len(y) * float(_loss(model, x, y, eval)), len(y))}


class RoundTimes(TrainingProcessCallback):  # type: ignore[misc]
    """Callback that notes when a round ends, and the examples of its clients."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.examples: list[int] = []

    def on_train_begin(self, *, model: Any) -> Any:
        """Note when the first round begins."""
        self.ends.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        """Note the end of a round; training continues."""
        self.ends.append(time.perf_counter())
        mean = aggregate_metrics[get_num_datapoints_weight_name(Population.TRAIN)].overall_value
        devices = aggregate_metrics[get_num_devices_weight_name(Population.TRAIN)]
        self.examples.append(round(mean * get_overall_value(devices)))
        return False, Metrics()


def simulate(run: PeerRun) -> PeerResult:
    """Simulate the run."""
    task = run.task
    torch.set_num_threads(run.threads)
    module = run.initial_model()
    module.loss, module.metrics = MethodType(_loss, module), MethodType(_metrics, module)  # type: ignore[assignment]
    x, y, clients = run.training_set()
    users = {client: (x[part], y[part]) for client, part in enumerate(map(torch.from_numpy, clients))}
    dataset = FederatedDataset.from_slices(users, get_user_sampler("minimize_reuse", list(users)))
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    times = RoundTimes()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=run.rounds,
            evaluation_frequency=run.rounds + 1,
            train_cohort_size=task.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=dataset, val_data=dataset, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=task.lr, local_num_epochs=task.epochs, local_batch_size=task.batch
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[times],
    )
    examples = [task.epochs * examples for examples in times.examples]
    return result_of(
        run, np.diff(times.ends).tolist(), examples, [weight.detach().cpu().numpy() for weight in module.parameters()]
    )


def main(run: str, result: str) -> None:
    """Simulate the run of one file and write its result into another; all workers draw the same cohorts."""
    with NumpySeedScope(SEED):
        write_result(Path(result), simulate(read_run(Path(run))))
