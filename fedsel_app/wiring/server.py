"""Server of a run: the strategy with its model, test set, links and run folder, and its rounds."""

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from fedsel_app.config import ConfigError, DataConfig, EvaluationConfig, PreprocessingConfig, SharedSettings
from fedsel_app.config.run import lower_wins, score_bounds, score_title
from fedsel_app.data.arrays import has_moments, moments_of_sums
from fedsel_app.data.batches import DeviceData, device_data
from fedsel_app.data.dataset import Dataset, load, load_surrogate, of_training_examples
from fedsel_app.data.inputs import Inputs, mapped, trial_inputs
from fedsel_app.data.partition import divide
from fedsel_app.models import building, flat_model
from fedsel_app.models.device import choose_device, naming_lack_of_memory, prepare
from fedsel_app.models.poisoning import BACKDOOR_SUCCESS, backdoor_success, validate_attack
from fedsel_app.models.tasks import task_of
from fedsel_app.network.links import make_links
from fedsel_app.records.run_folder import Recorder, RunFolder
from fedsel_app.records.schema import ACCURACY, RoundRecord
from fedsel_app.wiring.client_settings import validate_deployment
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.named_files import digests, initial_file, run_folder
from fedsel_app.wiring.validation import refuse_masked_calibration, validate_metrics, validate_task
from strategies.base import SelectionStrategy
from strategies.round.federation import Federation
from strategies.round.method_checks import build
from strategies.run_context import Admission, Evaluation, RunContext
from strategies.run_round import run_rounds

LOGGER = logging.getLogger("fedsel")
EVALUATION_BATCH = 256
DIVISIBLE_FLOPS = 1e8
"""Operations of a batch from which several threads evaluate faster than one; they take a millisecond or two."""


def make_run_context(config: AppConfig, recorder: Recorder) -> RunContext:
    """Context of a strategy: the initial model, the evaluation on the test set, the links and all settings."""
    run = config.run
    dataset = evaluated(config)
    validate_task(config.strategy, config.method, dataset.task)
    validate_attack(config.attack, dataset)
    device = choose_device(config.execution.device)
    model = make_model(config, device)
    refuse_masked_calibration(config, model.state.variances.size)
    inputs = trial_inputs(dataset.x_train, dataset.x_test)
    preprocessing = config.preprocessing
    test_set = device_data(config.data, preprocessing, run.seed, device)
    from fedsel_app.data.mapping import schema_of
    from fedsel_app.models.module_calls import forward_flops

    divisible = EVALUATION_BATCH * forward_flops(model.module, inputs) >= DIVISIBLE_FLOPS
    threads = config.execution.eval_threads if divisible else 1
    prepare(device, threads)
    sets = {"test": test_set, "surrogate": make_surrogate_set(config, dataset, preprocessing, device)}
    if config.partition.validation_fraction:
        examples = divide(config.partition, dataset.y_train, run.seed).validation
        sets["validation"] = DeviceData(of_training_examples(dataset, examples), preprocessing, device)

    score = find_score(config, model, dataset)
    further = flat_model.further_scores(config.evaluation.measured, dataset.task)

    def test(
        name: str,
        parameters: NDArray[np.float32],
        buffers: NDArray[np.float32],
        further: flat_model.Further | None = None,
    ) -> flat_model.Result:
        prepare(device, threads)
        with naming_lack_of_memory("The server"):
            model.load(parameters, buffers)
            data = cast(DeviceData, sets[name])
            result = flat_model.evaluate(model, data.test_batches(EVALUATION_BATCH), further)
            if config.attack.attack != "backdoor" or name != "test":
                return result
            success = {BACKDOOR_SUCCESS: backdoor_success(model, data, EVALUATION_BATCH)}
            return replace(result, scores={**result.scores, **success})

    def evaluate(parameters: NDArray[np.float32], buffers: NDArray[np.float32], name: str = "test") -> Evaluation:
        result = test(name, parameters, buffers, further)
        others = dict(result.scores)
        validated = name == "test" and "validation" in sets
        validation = evaluate(parameters, buffers, "validation") if validated else None
        return Evaluation(result.loss, others.pop(score, np.nan), others, validation)

    schema, unscaled = schema_of(dataset, config.data), needs_scaling(dataset, preprocessing)
    privacy = config.privacy
    protected = privacy.dp_clip_norm or privacy.masked or not privacy.share_moments or config.aggregation.traits.robust
    if config.partition.partition == "own" or not len(dataset.y_train):
        refuse_unstated(dataset, config.data, unscaled=bool(unscaled and protected))
    neutral = np.zeros_like(dataset.mean), np.ones_like(dataset.std)
    own_moments = (dataset.mean, dataset.std) if computed(preprocessing) else neutral
    if not unscaled:
        schema = schema.scaled(*own_moments)

    def scale(sums: NDArray[np.float64]) -> str:
        mean, std = moments_of_sums(sums, images=dataset.samples.dtype == np.uint8)
        if dataset.table is not None:
            mean, std = dataset.table.of_measures(mean, std)
        data = replace(dataset, mean=mean, std=std)
        sets["test"] = DeviceData(data, preprocessing, device)
        sets["surrogate"] = make_surrogate_set(config, data, preprocessing, device)
        return schema.scaled(mean, std).text

    return RunContext(
        **config.groups(),
        method=config.method,
        initial=model.export(),
        buffers=model.buffers_vector(),
        variances=model.state.variances,
        admission=Admission(
            *(model.least_batch, model.state.constants, model.state.marks),
            schema=schema.text,
            scale=scale if unscaled and not protected else None,
            channels=dataset.mean.size,
            features=() if dataset.table is None else dataset.table.units,
            example_clip=config.reported_values.example_clip if config.aggregation.max_update_norm else 0.0,
        ),
        layers=model.layers,
        classes=dataset.classes,
        links=make_links(config.network, run.clients, run.seed, config.availability),
        evaluate=(lambda parameters, buffers: None) if config.calibration.local else evaluate,
        recorder=recorder,
        surrogate=None if sets["surrogate"] is None else lambda *vectors: test("surrogate", *vectors).loss,
        score=score,
    )


def evaluated(config: SharedSettings) -> Dataset:
    """The data set with which the server evaluates. Raises ConfigError if it has no test examples, or one class."""
    dataset = load(config.data, config.run.seed)
    if dataset.task == "classification" and dataset.classes == 1:
        raise ConfigError(
            "Give the data a second class: all their examples have the same one, so that any model is right."
        )
    if not len(dataset.y_test):
        raise ConfigError("The server's data have no test examples. Add some, such as x_test and y_test.")
    return dataset


def needs_scaling(dataset: Dataset, preprocessing: PreprocessingConfig) -> bool:
    """True if samples are normalised by moments that only the clients know if their data are their own."""
    samples = dataset.samples
    by_channel = has_moments(samples.dtype) and dataset.mean.shape == samples.shape[1:2]
    return computed(preprocessing) and by_channel and not dataset.stated


def refuse_unstated(dataset: Dataset, config: DataConfig, *, unscaled: bool) -> None:
    """Raise ConfigError unless the server states the stand-ins of gaps and, if `unscaled`, the normalisation, which
    only clients with data of their own know.
    """
    measured = [] if dataset.table is None else list(filter(None, dataset.table.units))
    scales = ", ".join(f"{name}=[MEAN, DEVIATION]" for name in measured)
    stated = config.arguments.get("fill", {}) if dataset.table else {}
    columns = () if dataset.table is None else dataset.table.columns
    fills = ", ".join(f"{each.name}=VALUE" for each in columns if each.fill is not None and each.name not in stated)
    where = "mean and std in the .npz file" if dataset.table is None else f"scaling={{{scales}}} in 'data-arguments'"
    needed = [f"{where}, or 'normalize' false"] if unscaled else []
    needed += [f"fill={{{fills}}} in 'data-arguments', or leave 'missing' out"] if fills else []
    if needed:
        raise ConfigError(
            f"State on the server {'; and '.join(needed)}. Dates count in days since 1970. Clients with their own data "
            "are never asked what takes the place of a gap, and not for sums under differential privacy, with a robust "
            "'aggregation', or with 'secure-sums' or share-moments=false."
        )


def computed(preprocessing: PreprocessingConfig) -> bool:
    """True if samples are normalised by moments of the data, rather than by published ones."""
    return preprocessing.normalize and preprocessing.moments == "computed"


def find_score(config: AppConfig, model: flat_model.FlatModel, dataset: Dataset) -> str:
    """Name of the score of the run. Raises ConfigError if the data set's task has no such score or metric."""
    evaluation, task = config.evaluation, model.task
    validate_metrics(evaluation, dataset.task)
    score = evaluation.score_key(dataset.names) or task.score
    if score != ACCURACY and score in {item.name for item in fields(RoundRecord)}:
        raise ConfigError(f"Give the score another name than {score!r}, which the records have for something else.")
    if not lower_wins(score) and evaluation.target > score_bounds(score)[1]:
        raise ConfigError(f"The 'target' must be at most 1, the best {score_title(score)}. Got {evaluation.target!r}.")
    if score == "r2" and not np.ptp(dataset.y_test, axis=0).all():
        LOGGER.warning("R² is undefined: all test examples have the same target. The records have only the loss.")
    needs = config.strategy.needs(config.method)
    needed = [(name, "A metric that a method needs") for name in (*needs.metrics, *needs.fit_metrics)]
    for name, what in ((evaluation.score, "The 'score'"), *needed):
        asked = replace(evaluation, score=name)
        validate_metrics(asked, dataset.task)
        if name and asked.score_key(dataset.names) not in (scores := possible_scores(model, dataset, asked)):
            raise ConfigError(
                f"{what} must be one of {', '.join(scores)}, or a metric for {dataset.task} data (see 'metrics'). "
                f"Got {name!r}."
            )
    return score


def possible_scores(model: flat_model.FlatModel, dataset: Dataset, evaluation: EvaluationConfig) -> list[str]:
    """Names of the scores of the task, and of the metrics of these settings."""
    x, y = trial_batch(dataset, model.parameters.device)
    with flat_model.evaluating(model):
        sums = model.task.tally(model.outputs(x), y)
    return [*model.task.scores(sums, 0.0, len(y)), *evaluation.measured_keys(dataset.classes)]


def trial_batch(dataset: Dataset, device: torch.device) -> tuple[Inputs, Tensor]:
    """Two inputs for a trial (see `trial_inputs`) with their targets, on `device`."""
    targets = dataset.y_train if len(dataset.y_train) else dataset.y_test
    y = torch.from_numpy(targets[[0, min(1, len(targets) - 1)]])
    return mapped(lambda x: x.to(device), trial_inputs(dataset.x_train, dataset.x_test)), y.to(device)


def make_model(config: SharedSettings, device: torch.device) -> flat_model.FlatModel:
    """The initial model. Raises ConfigError if it does not fit the data, the mini-batches, the compressor or the file
    of its weights.
    """
    run, dataset, compression = config.run, evaluated(config), config.compression
    model = building.build_flat(
        run.model,
        dataset,
        run.seed,
        device,
        task_of(dataset, device, config.task),
        precision=config.execution.precision,
        local=config.calibration.local,
    )
    if run.initial_model:
        from fedsel_app.models.state_files import load_initial

        load_initial(model, initial_file(run.initial_model, run.model))
    if not np.isfinite(model.export()).all():
        raise ConfigError(f"Give the 'model' {run.model} finite weights: some are infinite or NaN at the start.")
    if config.task.task:
        from fedsel_app.models.building import try_task

        try_task(config.task.task, model, *trial_batch(dataset, device))
    if config.training.batch_size < model.least_batch:
        raise ConfigError(
            f"Set 'batch-size' to {model.least_batch} or more: the model (its BatchNorm) cannot train on mini-batches "
            f"of {config.training.batch_size}."
        )
    scores_entries = compression.traits.sparse and not compression.traits.seeded
    if ":" in run.model and scores_entries and compression.curvature_layers:
        model.refuse_curvature(mapped(lambda x: x.to(device), trial_inputs(dataset.x_train, dataset.x_test)))
    return model


def make_surrogate_set(
    config: AppConfig, dataset: Dataset, preprocessing: PreprocessingConfig, device: torch.device
) -> DeviceData | None:
    """The server's surrogate set, scaled as `dataset`; None unless the participation policy uses one."""
    if not config.participation.searches or config.search_loss.isp_loss != "surrogate":
        return None
    if path := config.search_loss.surrogate_path:
        dataset = load_surrogate(Path(path), dataset)
    else:
        examples = divide(config.partition, dataset.y_train, config.run.seed).surrogate
        dataset = of_training_examples(dataset, examples)
    if config.search_loss.surrogate_augment == "corrupted":
        from fedsel_app.data.corruption import corrupted

        dataset = corrupted(dataset, config.run.seed)
        preprocessing = replace(preprocessing, normalize=True, moments="computed")
    return DeviceData(dataset, preprocessing, device)


def open_run_folder(config: AppConfig, on_round: Callable[[dict[str, Any]], None] | None = None) -> RunFolder:
    """Open the folder of a new or resumed run; `on_round` receives its rounds."""
    values = config.values()
    files = digests(values)
    data = load(config.data, config.run.seed).record | ({"files": files} if files else {})
    folder = RunFolder(run_folder(config), values, resume=config.records.resume, data=data)
    folder.listeners += [on_round] if on_round else []
    return folder


def make_strategy(config: AppConfig, folder: RunFolder) -> SelectionStrategy:
    """Build the strategy of a run; resume it if `folder` has a checkpoint."""
    # With one BLAS thread the sums in the methods' linear algebra have the same order in every engine.
    threadpool_limits(1, user_api="blas")
    strategy = build(config.strategy, make_run_context(config, folder))
    if folder.saved is not None:
        strategy.restore(folder.saved)
    return strategy


def run_with(federation: Federation, config: AppConfig, on_round: Callable[[dict[str, Any]], None]) -> None:
    """Run the rounds of a run with the clients of `federation`; with `resume` only the remaining rounds.

    Raises ConfigError for settings of simulations alone, if the clients are not simulated.
    """
    if not federation.simulated:
        validate_deployment(config)
    with closing(open_run_folder(config, on_round)) as folder:
        run_rounds(make_strategy(config, folder), federation)
