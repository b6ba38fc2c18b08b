"""Scalars: one codec for all messages, from dataclasses to the flat dicts of scalars that Flower carries, and back."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from functools import cache
from reprlib import repr as shortened
from types import GenericAlias, UnionType
from typing import Any, ClassVar, Self, get_args

from fedsel_app.wire.codec import WireError

Scalar = bool | bytes | float | int | str
Config = dict[str, Scalar]
NAMES = {bool: "true or false", bytes: "bytes", float: "a number", int: "a whole number", str: "a text"}


class Report(StrEnum):
    """Numbers that a client measures in addition to training if a method or a solver needs them, one float each.

    The value is the metric's key. Each is a function of a model and of the client's training examples.
    """

    INITIAL_LOSS = "initial_loss"
    """Mean loss of the received model."""
    RMS_LOSS = "rms_loss"
    """Root of the mean squared loss of the received model (Oort's utility)."""
    GRADIENT_DEVIATION = "gradient_deviation"
    """Root of the mean squared distance of the mini-batch gradients from their mean, at the trained model (DELTA)."""
    EFFECTIVE_STEPS = "effective_steps"
    """Effective local steps, which include the effect of momentum (FedNova's ||a||_1)."""


METRIC = "metric "
"""Start of the key of a metric of the trained model that a client reports with its update."""


def bounded(low: float, high: float, **default: Any) -> Any:
    """Declare a field with a number from `low` to `high`. With a `default`, any other value counts as the default."""
    return field(metadata={"bounds": (low, high), "lenient": bool(default)}, **default)


def lenient(default: Any) -> Any:
    """Declare a field in which a value of another type counts as the `default`."""
    return field(default=default, metadata={"lenient": True})


@dataclass(frozen=True)
class Scalars:
    """Base of all messages: the fields are scalars or tuples of names, and are sent under their own names.

    A field without bounds may have any value of its type. An integer is also a number.
    """

    title: ClassVar[str]
    """Name of the message, as the start of a sentence."""

    @classmethod
    @cache
    def carried(cls) -> list[Field[Any]]:
        """The fields that are sent under their own names: all except those marked as separate."""
        return [item for item in fields(cls) if not item.metadata.get("apart")]

    def to_config(self) -> Config:
        """The fields as a config, properties or metrics of Flower. A field that is None is left out."""
        return {
            item.name: ",".join(value) if isinstance(value, tuple) else value
            for item in self.carried()
            if (value := getattr(self, item.name)) is not None
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Scalar]) -> Self:
        """Read and check the message. A field with a default may be missing, and other keys are ignored.

        Raises WireError if a field is missing, or its value is of another type or out of its bounds.
        """
        values: dict[str, Any] = {}
        for item in cls.carried():
            value = config.get(item.name, item.default)
            if value is MISSING:
                raise WireError(f"{cls.title} came without '{item.name}'. Server and clients must run the same app.")
            if value is not item.default:
                try:
                    bounds = item.metadata.get("bounds", ())
                    values[item.name] = read(value, item.type, f"{cls.title}'s '{item.name}'", *bounds)
                except WireError:
                    if not item.metadata.get("lenient"):
                        raise
        return cls(**values)


def read(value: Any, declared: Any, name: str, *bounds: float) -> Any:
    """Check the value of a field against its `declared` type and bounds. Raises WireError if it does not fit."""
    kind = get_args(declared)[0] if isinstance(declared, UnionType) else declared  # the other one is None
    if isinstance(kind, GenericAlias):
        [member, _] = get_args(kind)
        names = read(value, str, name).split(",")
        if unknown := set(names) - {"", *member}:
            raise WireError(f"{name} must be names of a {member.__name__}. Got {shortened(min(unknown))}.")
        return tuple(member(each) for each in names if each)
    typed = isinstance(value, (float, int) if kind is float else kind) and isinstance(value, bool) == (kind is bool)
    if not typed or (bounds and not bounds[0] <= value <= bounds[1]):
        limits = f" from {bounds[0]:.3g} to {bounds[1]:.3g}" if bounds else ""
        raise WireError(f"{name} must be {NAMES[kind]}{limits}. Got {shortened(value)}.")
    return kind(value)
