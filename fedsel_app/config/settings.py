"""Settings as frozen dataclasses: types, bounds, choices and meanings, which are checked when one is built."""

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple, Self

from fedsel_app.config.words import did_you_mean, nearest_setting

Value = bool | int | float | str
"""Value of a setting, of a type that Flower's run configuration can hold."""

LARGEST = 2**63
"""Whole numbers are below it, so that NumPy has an integer for them."""


class ConfigError(ValueError):
    """Error of a setting, or a combination of settings, that cannot be run; the message says what to do."""


def require(condition: bool, name: str, requirement: str, got: object, hint: str = "") -> None:
    """Raise ConfigError("The 'name' parameter must be `requirement`. Got `got`.`hint`") unless met."""
    if not condition:
        raise ConfigError(f"The '{name}' parameter must be {requirement}. Got {got!r}.{hint}")


def setting(
    default: Value,
    doc: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    choices: tuple[str, ...] | Mapping[str, str] = (),
    closed: bool = True,
    variants: tuple[Value, Value] | None = None,
    first: bool = False,
) -> Any:
    """Declare one setting.

    Parameters
    ----------
    default : its default value, of its type
    doc : what it does, with its unit, without a full stop at the end
    low, high : closed bounds of a number
    above, below : open bounds of a number
    choices : its values, or each value with its meaning
    closed : whether there are no other values; False where a choice stands for many, such as flwr:NAME, and the group
        checks the value itself
    variants : its values in the paper's text and in the authors' code, where the two differ: see `Variants`
    first : whether it is one of the settings that a user sets first, which `fedsel settings` lists without --all
    """
    bounds = {"low": low, "high": high, "above": above, "below": below}
    meanings = choices if isinstance(choices, Mapping) else dict.fromkeys(choices, "")
    metadata = {
        "doc": doc,
        "choices": tuple(meanings) if closed else (),
        "choice_meanings": meanings,
        "bounds": bounds,
        "variants": variants and Variants(*variants),
        "first": first,
    }
    return field(default=default, metadata=metadata)


class Variants(NamedTuple):
    """Values of one setting in the paper's text and in the authors' code."""

    text: Value
    code: Value


class Entry(NamedTuple):
    """One setting as it is listed.

    Attributes
    ----------
    allowed : its choices or its bounds; empty if it has neither
    choices : value -> meaning, which is empty where the meaning of the setting explains it
    closed : whether `choices` are all its values
    variants : its values in the paper's text and in the authors' code; None if they are the same
    first : whether it is one of the settings that a user sets first
    """

    key: str
    default: Value
    meaning: str
    allowed: str
    choices: Mapping[str, str]
    closed: bool
    variants: Variants | None
    first: bool


@dataclass(frozen=True)
class Settings:
    """Group of settings. Building one checks every field's type, bounds and choices; a wrong one is a ConfigError."""

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name.replace("_", "-"), type(item.default), item.metadata, getattr(self, item.name))

    @classmethod
    def keys(cls, prefix: str = "") -> dict[str, str]:
        """Setting key -> field name."""
        return {prefix + item.name.replace("_", "-"): item.name for item in fields(cls)}

    @classmethod
    def defaults(cls, prefix: str = "") -> dict[str, Value]:
        """Setting key -> default value."""
        return {
            prefix + item.name.replace("_", "-"): item.default for item in fields(cls) if item.default is not MISSING
        }

    @classmethod
    def entries(cls, prefix: str = "") -> list[Entry]:
        """Every setting of the group, as it is listed."""
        defaults = cls.defaults(prefix)
        metadata = [item.metadata for item in fields(cls)]
        return [
            Entry(
                key,
                default,
                declared["doc"],
                _allowed(declared).replace(ANYTHING, ""),
                declared["choice_meanings"],
                bool(declared["choices"]),
                declared["variants"],
                declared["first"],
            )
            for (key, default), declared in zip(defaults.items(), metadata, strict=True)
        ]

    @classmethod
    def from_values(cls, values: Mapping[str, Value], prefix: str = "") -> Self:
        """Pick this group's keys out of `values`; absent ones keep their defaults.

        Raises
        ------
        ConfigError
            For a value of the wrong type or out of range.
        """
        types = {item.name: type(item.default) for item in fields(cls)}
        picked = {name: values[key] for key, name in cls.keys(prefix).items() if key in values}
        for name, value in picked.items():
            if types[name] is float and type(value) is int and abs(value) < LARGEST:
                picked[name] = float(value)
        return cls(**picked)

    def values(self, prefix: str = "") -> dict[str, Value]:
        """Setting key -> value."""
        return {key: getattr(self, name) for key, name in self.keys(prefix).items()}


def _check(key: str, expected: type, metadata: Mapping[str, Any], value: object) -> None:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    several = _several(key, expected, metadata["choices"], value)
    require(type(value) is expected, key, names[expected], value, several)
    if metadata["choices"]:
        hint = several or did_you_mean(str(value), metadata["choices"])
        require(value in metadata["choices"], key, _allowed(metadata), value, hint)
    if isinstance(value, int | float) and expected is not bool:
        require(type(value) is float or abs(value) < LARGEST, key, "a number of 64 bits", value)
        bounds = metadata["bounds"]
        inside = bounds["low"] <= value <= bounds["high"] and bounds["above"] < value < bounds["below"]
        if not inside:
            shown = int(value) if float(value).is_integer() else value
            require(inside, key, _allowed(metadata), shown)


def _several(key: str, expected: type, choices: Iterable[str], value: object) -> str:
    """Sentence, after a space, on what to type for several values with commas between them; empty for others."""
    parts = value.split(",") if isinstance(value, str) else []
    try:
        known = [part in choices if expected is str else math.isfinite(float(part)) for part in parts]
    except ValueError:
        return ""
    typed = f"fedsel compare --strategies NAME --grid {key}={value} --out DIR"
    return f" Several values are compared: say {typed}." if len(parts) > 1 and all(known) else ""


ANYTHING = "in (-∞, ∞)"


def _allowed(metadata: Mapping[str, Any]) -> str:
    choices: Mapping[str, str] = metadata["choice_meanings"]
    return "one of " + ", ".join(choices) if choices else "in " + _interval(**metadata["bounds"])


def _interval(low: float, high: float, above: float, below: float) -> str:
    left = f"({above:g}" if above >= low else f"[{low:g}"
    right = f"{below:g})" if below <= high else f"{high:g}]"
    return f"{left}, {right}".replace("(-inf", "(-∞").replace("inf)", "∞)")


def refuse_unknown(values: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for a key that no group has, naming the nearest known one."""
    known = list(known)
    for key in values:
        if key not in known:
            hint = nearest_setting(key, known) or "`fedsel settings --all` lists all of them."
            raise ConfigError(f"There is no setting '{key}'. {hint}")


def parse_named(text: str, setting: str, example: str) -> dict[str, Any]:
    """Name -> value of the TOML pairs in `text`, which have commas between them: arguments of a library's function.

    Raises
    ------
    ConfigError
        Naming `setting`, with the `example`, for anything else.
    """
    try:
        parsed = tomllib.loads(f"named = {{{text}}}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    if list(parsed) != ["named"]:
        raise ConfigError(
            f"The '{setting}' parameter must be NAME=VALUE with commas between them and text in quotes, such as "
            f"{example}. Got {text!r}. A shell keeps the quotes as in --set '{setting}={example}'."
        )
    return dict(parsed["named"])
