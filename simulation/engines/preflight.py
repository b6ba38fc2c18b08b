"""Preflight checks of a run, before any process starts, and what both engines do around a simulated run."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from fedsel_app.caches import kept
from fedsel_app.config import ConfigError, RunConfig, SharedSettings, TrainingConfig
from fedsel_app.data.client_parts import client_parts
from fedsel_app.data.dataset import load
from fedsel_app.data.inputs import trial_inputs
from fedsel_app.models.device import choose_device
from fedsel_app.models.module_calls import forward_flops
from fedsel_app.records.fedsel_folder import refuse_links, refuse_used
from fedsel_app.records.reading import check_client, read_rows
from fedsel_app.records.run_folder import read_checkpoint, read_rounds
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.named_files import run_folder
from fedsel_app.wiring.server import make_model
from simulation.engines.run_folders import discard_states, refuse_foreign_states
from strategies.round.replies.deadline import over_selected_count


def refuse_unrunnable(config: AppConfig) -> None:
    """Raise ConfigError if the run would fail after its processes have started.

    Reasons: a used or damaged run folder, a missing device, too little memory for ef21, missing data, or a model or
    partition that does not fit the data.
    """
    run = config.run
    folder = run_folder(config)
    if config.records.resume:
        refuse_links(folder)
        read_checkpoint(folder)
        read_rounds(folder)
        read_rows(folder / "clients.jsonl", check_client)
    else:
        refuse_used(folder)
    refuse_foreign_states(folder, resume=config.records.resume)
    size, _ = model_cost(config)
    dataset = load(config.data, run.seed)
    _refuse_many_estimates(config, size)
    client_parts(config.partition, dataset, run.clients, run.seed)


def model_cost(config: AppConfig) -> tuple[int, int]:
    """Trainable parameters of the model, and operations of one sample's forward pass.

    Raises ConfigError as `make_model` does, or if the device is missing.
    """
    return _model_cost(_of_model(config), choose_device(config.execution.device))


@kept
def _model_cost(config: SharedSettings, device: torch.device) -> tuple[int, int]:
    model, dataset = make_model(config, device), load(config.data, config.run.seed)
    return model.size, forward_flops(model.module, trial_inputs(dataset.x_train, dataset.x_test))


def _of_model(config: AppConfig) -> SharedSettings:
    """The settings that `make_model` reads: the same for most runs of a comparison, which then build one model."""
    return SharedSettings(
        run=RunConfig(model=config.run.model, initial_model=config.run.initial_model, seed=config.run.seed),
        data=config.data,
        task=config.task,
        training=TrainingConfig(batch_size=config.training.batch_size),
        compression=config.compression,
        calibration=config.calibration,
        execution=config.execution,
    )


def _refuse_many_estimates(config: AppConfig, size: int) -> None:
    """Raise ConfigError if the estimates of ef21 for a model of `size` parameters do not fit in memory."""
    if not config.compression.ef21:
        return
    run, memory_bytes = config.run, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    seen = run.clients
    if config.strategy.exact_cohort and config.participation.participation == "fixed":
        seen = min(seen, run.rounds * over_selected_count(run.cohort, config.replies.over_selection, run.clients))
    needed_bytes = 4 * seen * size
    if needed_bytes > memory_bytes:
        raise ConfigError(
            f"With the 'error-feedback-scheme' ef21, the server keeps a dense estimate of each client's update: "
            f"{needed_bytes / 2**30:,.1f} GiB for {seen:,} clients and {size:,} parameters, and this machine has "
            f"{memory_bytes / 2**30:,.1f} GiB. Choose ef14, whose residuals are with the clients."
        )


@contextmanager
def simulated_run(config: AppConfig) -> Iterator[tuple[AppConfig, Path]]:
    """Check a run before anything starts; give its configuration and its run folder, where its clients keep their
    states. The states of a finished run are removed, unless they have layers of the model. Until then, Flower
    logs critical lines only.

    Raises ConfigError if the run would fail later.
    """
    refuse_unrunnable(config)
    flower, folder = logging.getLogger("flwr"), run_folder(config)
    level = flower.level
    flower.setLevel(logging.CRITICAL)
    try:
        yield replace(config, records=replace(config.records, out=str(folder), state_dir=str(folder))), folder
    finally:
        flower.setLevel(level)
    if not config.calibration.local:
        discard_states(folder)
