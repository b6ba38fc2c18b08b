"""Generated electrocardiograms of PTB-XL's shape and kind: 12 leads, 10 s at 100 Hz, six labels (multi-label).

The heart is a dipole that turns in space. Each wave of a beat (P, Q, R, S, T) is a Gaussian in time along a direction
of its own (McSharry, Clifford, Tarassenko and Smith, IEEE Trans. Biomed. Eng. 50(3), 2003; Sameni, Clifford, Jutten and
Shamsollahi, EURASIP J. Adv. Signal Process. 2007). Dower's lead vectors (Clin. Cardiol. 3(2), 1980) convert it to
twelve leads. The labels of `ptb_xl.LABELS` change the signal as a cardiologist would expect:

- AFIB: no P wave, irregular intervals, fibrillatory waves of 5 to 8 Hz;
- PVC: some beats come early, wide, without a P wave and with an inverted T wave, and a pause follows;
- CLBBB: a broad QRS to the left and back, and an inverted T wave;
- CRBBB: a late broad wave to the right and front (R' in V1, S in I);
- LAFB: the main QRS forces point up instead of down (R in I, S in II);
- 1AVB: the P wave comes 140 ms earlier.

Records also differ in heart rate, size, the direction and time of each wave, baseline wander and noise. The labels are
drawn independently with the probabilities `PREVALENCE`, about three times those of PTB-XL, except that CLBBB excludes
CRBBB and AFIB excludes 1AVB. Each record is drawn from its own stream, so it does not depend on the number of records.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import DataConfig, require
from fedsel_app.data.dataset import Dataset, from_arrays
from fedsel_app.seeds import Purpose, stream
from laboratory.data_sets.ptb_xl import LABELS, SECONDS

PREVALENCE = (0.2, 0.15, 0.1, 0.1, 0.2, 0.15)
RATE_HZ = 100
SAMPLES = SECONDS * RATE_HZ
BEFORE_S, WINDOW = 0.5, 110
"""A beat has 110 samples, which begin 0.5 s before its R wave."""

Floats = NDArray[np.float64]
Wave = tuple[float, float, tuple[float, float, float]]
"""Centre after the R wave in s, width in s, direction (left, down, back) in mV."""

P: Wave = (-0.16, 0.025, (0.08, 0.12, -0.02))
QRS: tuple[Wave, ...] = (
    (-0.025, 0.010, (-0.12, -0.05, -0.15)),
    (0.0, 0.012, (0.9, 0.9, 0.5)),
    (0.025, 0.010, (-0.15, -0.1, 0.25)),
)
QRS_LEFT_BLOCK: tuple[Wave, ...] = ((0.0, 0.030, (0.7, 0.5, 0.6)), (0.055, 0.030, (0.8, 0.4, 0.7)))
LATE_RIGHT: Wave = (0.060, 0.022, (-0.5, -0.05, -0.6))
T: Wave = (0.28, 0.05, (0.25, 0.2, -0.1))
T_LEFT_BLOCK: Wave = (0.28, 0.05, (-0.3, -0.15, -0.35))
ECTOPIC: tuple[Wave, ...] = ((0.02, 0.045, (-0.9, 0.8, 0.9)), (0.30, 0.07, (0.5, -0.4, -0.4)))
EARLIER_P_S = 0.14

ARMS = ((0.632, -0.235, 0.059), (0.235, 1.066, -0.132))
CHEST = (
    (-0.515, 0.157, -0.917),
    (0.044, 0.164, -1.387),
    (0.882, 0.098, -1.277),
    (1.213, 0.127, -0.601),
    (1.125, 0.127, -0.086),
    (0.831, 0.076, 0.230),
)
"""Dower's lead vectors: leads V1 to V6 here, leads I and II in `ARMS`."""

LIMB = np.array([[1, 0], [0, 1], [-1, 1], [-0.5, -0.5], [1, -0.5], [-0.5, 1]]) @ np.array(ARMS)
LEAD_VECTORS = np.concatenate([LIMB, CHEST])
"""(12, 3), the leads in the order of `ptb_xl.LEADS`. The last four limb leads are computed from I and II."""


def generate(examples: int, test_fraction: float, seed: int) -> dict[str, NDArray[Any]]:
    """Draw the records.

    Parameters
    ----------
    examples
        Training records n.
    test_fraction
        Number of test records as a share of n, in addition to the n training records; at least one record.
    seed
        Seed of the run.

    Returns
    -------
    dict
        x_train, x_test : float32 (n, 12, 1000), in mV; y_train, y_test : float32 (n, 6), as `ptb_xl.LABELS`; task.
    """
    total = examples + max(1, round(test_fraction * examples))
    x, y = np.empty((total, len(LEAD_VECTORS), SAMPLES), np.float32), np.empty((total, len(LABELS)), np.float32)
    for record in range(total):
        rng = stream(seed, Purpose.DATA, 0, record)
        holds = _labels(rng)
        x[record] = _leads(rng, holds)
        y[record] = [holds[label] for label in LABELS]
    return {
        "x_train": x[:examples],
        "y_train": y[:examples],
        "x_test": x[examples:],
        "y_test": y[examples:],
        "task": np.array("multi-label"),
    }


def _labels(rng: np.random.Generator) -> dict[str, bool]:
    holds = dict(zip(LABELS, (rng.random(len(LABELS)) < PREVALENCE).tolist(), strict=True))
    holds["CRBBB"] &= not holds["CLBBB"]
    holds["1AVB"] &= not holds["AFIB"]
    return holds


def _leads(rng: np.random.Generator, holds: dict[str, bool]) -> Floats:
    """One record in mV, (12, 1000)."""
    time = np.arange(SAMPLES) / RATE_HZ
    heart = np.zeros((SAMPLES + 2 * WINDOW, 3))
    sinus, ectopic = (_jittered(rng, waves) for waves in (_sinus(holds), ECTOPIC))
    for beat, early in _beats(rng, holds):
        centre, width, direction = ectopic if early else sinus
        first = int((beat - BEFORE_S) * RATE_HZ)
        after = (first + np.arange(WINDOW)) / RATE_HZ - beat
        waves = np.exp(-0.5 * np.square((after[:, None] - centre) / width))
        heart[first + WINDOW : first + 2 * WINDOW] += waves @ direction
    dipole = heart[WINDOW:-WINDOW].T * rng.lognormal(0.0, 0.15)
    if holds["AFIB"]:
        angle = 2.0 * np.pi * (rng.uniform(5.0, 8.0) * time + 0.3 * np.sin(2.0 * np.pi * rng.uniform(0.2, 0.5) * time))
        dipole += rng.normal(0.0, 0.05, (3, 1)) * np.sin(angle)
    wander = rng.normal(0.0, 0.04, (len(LEAD_VECTORS), 1)) * np.sin(
        2.0 * np.pi * rng.uniform(0.15, 0.4) * time + rng.uniform(0.0, 2.0 * np.pi)
    )
    noise = rng.normal(0.0, 0.02, wander.shape)
    leads: Floats = LEAD_VECTORS @ dipole + wander + noise
    return leads


def _sinus(holds: dict[str, bool]) -> list[Wave]:
    """The waves of a beat that is not ectopic."""
    qrs = list(QRS_LEFT_BLOCK if holds["CLBBB"] else QRS)
    if holds["LAFB"]:
        qrs = [(centre, width, (left, -0.8 * down, back)) for centre, width, (left, down, back) in qrs]
    if holds["CRBBB"]:
        qrs.append(LATE_RIGHT)
    centre, width, direction = P
    p = [] if holds["AFIB"] else [(centre - EARLIER_P_S * holds["1AVB"], width, direction)]
    return [*p, *qrs, T_LEFT_BLOCK if holds["CLBBB"] else T]


def _jittered(rng: np.random.Generator, waves: list[Wave] | tuple[Wave, ...]) -> tuple[Floats, Floats, Floats]:
    """Centres (W,), widths (W,) and directions (W, 3) of one person's waves."""
    centre, width, direction = (np.array(values) for values in zip(*waves, strict=True))
    around = rng.normal(1.0, 0.05, (2, len(waves)))
    return centre * around[0], width * around[1], direction * rng.normal(1.0, 0.15, direction.shape)


def _beats(rng: np.random.Generator, holds: dict[str, bool]) -> list[tuple[float, bool]]:
    """Time of each R wave in s, from just before the record to just after it, and whether the beat is ectopic."""
    interval = 60.0 / rng.uniform(55.0, 95.0)
    spread = 0.35 if holds["AFIB"] else 0.03
    beats = []
    now = -BEFORE_S * rng.random()
    early = False
    # Every third to sixth beat is ectopic, beginning with one of the first.
    period = int(rng.integers(3, 7)) if holds["PVC"] else 0
    while now < SAMPLES / RATE_HZ + BEFORE_S:
        beats.append((now, early))
        pause = 1.4 if early else 1.0
        early = period > 0 and len(beats) % period == period - 1
        now += interval * rng.uniform(1.0 - spread, 1.0 + spread) * (0.6 if early else pause)
    return beats


def load(config: DataConfig, *, seed: int, examples: int = 2000) -> Dataset:
    """Generate `examples` training records. Raises ConfigError if there is not at least one."""
    require(type(examples) is int and examples >= 1, "examples", "a whole number of at least 1", examples)
    return from_arrays(generate(examples, config.test_fraction, seed), "The data set 'ecg'")
