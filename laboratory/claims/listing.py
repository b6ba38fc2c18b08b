"""Listing of claims and rankings for the terminal: verdict, paper, scale, and cost of the runs on one core."""

from functools import lru_cache

import torch
from rich.table import Table

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load
from fedsel_app.models import building
from fedsel_app.models.device import choose_device
from fedsel_app.models.module_calls import forward_flops
from fedsel_app.wiring.configuration import AppConfig
from laboratory.claims.claim import Claim
from laboratory.claims.ledger import advantage_text
from laboratory.claims.measured import Measured
from laboratory.claims.ranking import Ranking
from laboratory.claims.runs import asked_runs, missing_runs
from laboratory.claims.study import Study
from laboratory.claims.tuned import Tuned
from laboratory.claims.verdict import DECIDED, decide
from laboratory.published import expected_shape
from simulation.workbench.terminal import whole_table

STEP_S = 4e-4
"""Seconds that a local step takes in addition to the model's arithmetic."""
FLOPS_PER_S = {"cpu": 5e10, "cuda": 5e12, "mps": 1e12}
"""Floating-point operations per second of one core, or of one GPU with small kernels, which do not fill it."""
TRAINING_PASSES = 3
"""Forward passes that cost as much as one forward and backward pass."""


def claims_table(measured: Measured) -> Table:
    """Table of all claims and rankings, one line each."""
    claims, rankings = Claim.load(), Ranking.load()
    verdicts = decide(claims, measured)
    standing = [claim for claim in claims if not claim.superseded]
    runs = sum(len(study.seeds) * len(study.sides) for study in (*claims, *rankings))
    caption = (
        f"{len(standing)} claims, {sum(verdicts[claim.name].word in DECIDED for claim in standing)} decided, and "
        f"{len(claims) - len(standing)} superseded; {runs} runs, some of them shared"
    )
    columns = "claim", "verdict", "metric", "advantage", "paper", "scale"
    table = whole_table(*columns, numbers=("missing", "core minutes"), caption=caption, fold=False)
    for claim in claims:
        for index, verdict in enumerate(verdicts[claim.name].verdicts):
            word = "superseded" if claim.superseded else verdict.word
            shown = word, verdict.pairs.metric.name, advantage_text(verdict)
            of_claim = ("",) * 4 if index else (claim.paper, claim.scale, *_costs(claim, measured))
            table.add_row("" if index else claim.name, *shown, *of_claim)
    for ranking in rankings:
        table.add_row(ranking.name, "ranking", ranking.title, "", "", "", *_costs(ranking, measured))
    for tuned in Tuned.load():
        table.add_row(tuned.name, "tuned ranking", tuned.title, "", "", "", *_costs_of_tuned(tuned, measured))
    return table


def _costs(study: Study, measured: Measured) -> tuple[str, str]:
    """Number of missing runs, and core minutes of all runs: measured or else expected, unknown if the data set is."""
    missing, seconds = str(len(missing_runs([study], measured))), 0.0
    for side in study.sides:
        known = measured.seconds(study, side)
        try:
            one = sum(known) / len(known) if known else expected_s(study.configuration(side, study.seeds[0]))
        except ConfigError:
            return missing, "unknown"
        seconds += one * len(study.seeds)
    return missing, f"{seconds / 60:,.1f}"


def _costs_of_tuned(tuned: Tuned, measured: Measured) -> tuple[str, str]:
    """Number of missing runs of the search and the comparison, and core minutes of all: the stated core hours."""
    known = asked_runs(tuned.parts(measured))
    missing = tuned.run_count - len(known) + len(missing_runs(tuned.parts(measured), measured))
    return str(missing), f"{60 * tuned.core_hours:,.1f}"


def expected_s(config: AppConfig) -> float:
    """Seconds that the training and the loss probes of a run are expected to take.

    Raises ConfigError if the data are absent and their size is not known.
    """
    run, training = config.run, config.training
    sample_shape, classes, examples = _data_size(config.data, run.seed)
    flops = _forward_flops(run.model, sample_shape, classes)
    forward_s = training.batch_size * flops / FLOPS_PER_S[choose_device(config.execution.device).type]
    batches = -(-examples // (run.clients * training.batch_size))
    steps = training.local_steps or training.local_epochs * batches
    probes = run.clients if config.strategy.needs(config.method).probed_numbers else 0
    training_s = run.cohort * steps * (STEP_S + TRAINING_PASSES * forward_s)
    probes_s = probes * (STEP_S + (config.evaluation.probe_batches or batches) * forward_s)
    return run.rounds * config.strategy.most_iterations(config.method) * (training_s + probes_s)


@lru_cache(maxsize=64)
def _data_size(data: DataConfig, seed: int) -> tuple[tuple[int, ...], int, int]:
    """Shape of a sample, classes and training examples: of the data set, or as published if it is absent."""
    try:
        dataset = load(data, seed)
    except ConfigError:
        if (expected := expected_shape(data)) is None:
            raise
        return expected
    return dataset.x_train.shape[1:], dataset.classes, len(dataset.y_train)


@lru_cache(maxsize=16)
def _forward_flops(model: str, sample_shape: tuple[int, ...], classes: int) -> int:
    return forward_flops(building.build(model, sample_shape, classes, 0), torch.zeros(1, *sample_shape))
