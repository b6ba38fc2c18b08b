"""Scalars: the values that a Flower config or metrics dict can hold, and the reports that one can ask a client for."""

from enum import StrEnum

Scalar = bool | bytes | float | int | str
Config = dict[str, Scalar]


class Report(StrEnum):
    """Numbers that a client measures beside its training where a method or a solver asks for them, one float each.

    The value is the metric's key. Each is a function of a model and of the client's training examples.
    """

    INITIAL_LOSS = "initial_loss"
    """Mean loss of the received model."""
    RMS_LOSS = "rms_loss"
    """Root of the mean squared loss of the received model (Oort's utility)."""
    GRADIENT_DEVIATION = "gradient_deviation"
    """Root of the mean squared distance of the mini-batch gradients from their mean, at the trained model (DELTA)."""
    EFFECTIVE_STEPS = "effective_steps"
    """Local steps, each counted as far as momentum carries it (FedNova's ||a||_1)."""
