"""Settings as frozen dataclasses with types, bounds, choices and meanings. Building one checks its values."""

import difflib
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar

from fedsel_app.config.scopes import SCOPES, Owner, Scope

Value = bool | int | float | str
"""Value of a setting: a type that Flower's run configuration supports."""

LARGEST = 2**63
"""Upper bound of integers, which NumPy can then represent."""
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
"""Type of a setting -> its name in a message."""


IN_LOG = "see the client's log"


class ConfigError(ValueError):
    """Error for a setting or a combination of settings that cannot run. The message says what to do.

    Attributes
    ----------
    told : what a client tells other machines in place of a message that has something of its data; else the message
    """

    def __init__(self, message: str = "", told: str = "") -> None:
        super().__init__(message)
        self.told = told or message


def plain_value(value: Any) -> Any:
    """A number, text or list of them as Python's own, from those of NumPy, torch and pandas; a path becomes text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain_value(each) for each in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def setting_value(value: Any) -> Any:
    """A setting's value as Python's own number or text; a list becomes its values separated by commas."""
    plain = plain_value(value)
    return ",".join(map(str, plain)) if isinstance(plain, list) else plain


def require(condition: bool, name: str, requirement: str, got: object) -> None:
    """Raise ConfigError("The 'name' parameter must be `requirement`. Got `got`.") unless met."""
    if not condition:
        raise refusal(name, requirement, got)


def refusal(name: str, requirement: str, got: object, hint: str = "") -> ConfigError:
    """Error of a value that does not meet the `requirement`."""
    return ConfigError(f"The '{name}' parameter must be {requirement}. Got {got!r}.{hint}")


def did_you_mean(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """Question, after a space, that suggests the nearest of the `words`; empty if none is near."""
    typed = word.lower().replace("_", "-")
    near = difflib.get_close_matches(typed, list(words), n=1, cutoff=cutoff) if len(typed) > 1 else []
    return f" Did you mean '{near[0]}'?" if near else ""


class Traits(Protocol):
    """Traits of a choice: what it means and needs. Readers ask a choice for its traits, never for its name."""

    @property
    def meaning(self) -> str:
        """What `fedsel settings` says about it."""


T = TypeVar("T", bound=Traits)


def meanings(choices: Mapping[str, Traits]) -> dict[str, str]:
    """Choice -> its meaning, as `setting` declares them."""
    return {name: traits.meaning for name, traits in choices.items()}


def having(choices: Mapping[str, T], has: Callable[[T], object]) -> tuple[str, ...]:
    """The choices for which `has` is true."""
    return tuple(name for name, traits in choices.items() if has(traits))


def named(choices: Mapping[str, T], has: Callable[[T], object]) -> str:
    """The choices for which `has` is true, as a sentence names them: "a, b or c"."""
    *others, last = having(choices, has)
    return f"{', '.join(others)} or {last}" if others else last


class Bounds(NamedTuple):
    """Bounds of a number: `low` and `high` are closed, `above` and `below` open."""

    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def hold(self, number: float) -> bool:
        """True if the number is within the bounds."""
        return self.low <= number <= self.high and self.above < number < self.below

    def __str__(self) -> str:
        left = f"({self.above:g}" if self.above >= self.low else f"[{self.low:g}"
        right = f"{self.below:g})" if self.below <= self.high else f"{self.high:g}]"
        return f"{left}, {right}".replace("(-inf", "(-∞").replace("inf)", "∞)")


class Reading(NamedTuple):
    """Values of a setting with which another one is read: `values`, or all but these if `excluded`.

    A value that ends with a colon stands for all values that begin with it.
    """

    values: tuple[Value, ...]
    excluded: bool = False

    def holds(self, value: Value) -> bool:
        """True if the other setting is read with this `value`."""
        prefixes = tuple(str(named) for named in self.values if str(named).endswith(":"))
        return (value in self.values or str(value).startswith(prefixes)) != self.excluded


def unless(*values: Value) -> Reading:
    """All values but these."""
    return Reading(values, excluded=True)


Conditions = Mapping[str, Reading]
"""Setting -> values with which another setting is read; all conditions must hold."""
ReadBy = dict[str, tuple[Value, ...] | Reading]
"""Conditions as they are declared: a tuple stands for its values."""


class Entry(NamedTuple):
    """One setting as it is declared and listed.

    Attributes
    ----------
    choices : value -> meaning, which is empty where the meaning of the setting explains it
    closed : whether `choices` are all its values
    bounds : of a number
    first : whether it is one of the settings that a user sets first
    private : its values with differential privacy; True: all; see `private_values`
    scope : what it describes: see `SCOPES`
    owner, code, own : see `setting`
    read_by : alternatives; it has an effect if the conditions of one of them hold; empty: always
    """

    key: str
    default: Value
    meaning: str
    choices: Mapping[str, str]
    closed: bool
    bounds: Bounds
    first: bool
    private: tuple[Value, ...] | Literal[True]
    scope: Scope
    owner: Owner
    code: bool
    own: bool
    read_by: tuple[Conditions, ...]

    @property
    def private_values(self) -> tuple[Value, ...]:
        """Its values with differential privacy; empty: all, as for each setting that changes no number of a run."""
        if self.private is True or not (self.private or self.scope.numbers):
            return ()
        return self.private or (self.default,)

    @property
    def allowed(self) -> str:
        """Its choices or its bounds; empty if it has neither."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        return "" if self.bounds == Bounds() else f"in {self.bounds}"

    def check(self, value: object) -> None:
        """Raise ConfigError if the setting cannot have this value."""
        expected = type(self.default)
        if type(value) is not expected:
            raise refusal(self.key, TYPES[expected], value)
        if self.closed and value not in self.choices:
            raise refusal(self.key, self.allowed, value, did_you_mean(str(value), self.choices))
        if isinstance(value, int | float) and expected is not bool:
            require(type(value) is float or abs(value) < LARGEST, self.key, "a number of 64 bits", value)
            if not self.bounds.hold(value):
                shown = int(value) if float(value).is_integer() else value
                raise ConfigError(f"The '{self.key}' parameter must be in {self.bounds}. Got {shown!r}.")


def setting(
    default: Value,
    doc: str,
    *,
    choices: tuple[str, ...] | Mapping[str, str] = (),
    closed: bool = True,
    first: bool = False,
    private: tuple[Value, ...] | Literal[True] = (),
    scope: str = "",
    owner: Owner = "",
    code: bool = False,
    own: bool = False,
    read_by: ReadBy | Sequence[ReadBy] = (),
    **bounds: float,
) -> Any:
    """Declare one setting.

    Parameters
    ----------
    default : its default value, of its type
    doc : what it does, with its unit, without a full stop at the end
    choices : its values, or each value with its meaning
    closed : True if there are no other values; False if a choice stands for many, such as hf:NAME, and the group
        checks the value itself
    first : True if `fedsel settings` lists it without --all, because users often set it
    private : the values for which the proof of differential privacy holds (docs/security.md); True: all values. Empty:
        those of its group; of neither, all values if its scope changes no number of a run; else it is not proven yet,
        and only the default value runs with differential privacy
    scope : what it describes, a key of `SCOPES`; empty: what its group describes
    owner : "may" if the owner of a client may set it for that client in a deployment, "alone" if nobody else may
    code : True if a value may name a user's own code, package.module:name
    own : True if every run of a comparison has its own value, so that no command or function takes one for all
    read_by : other setting -> its values with which this one has an effect, or `unless` and the values without; several
        such mappings are alternatives. With other values it is refused. Within a method's settings, the keys of others
        have no method's name
    bounds : of a number, see `Bounds`
    """
    metadata = {
        "default": default,
        "meaning": doc,
        "choices": choices if isinstance(choices, Mapping) else dict.fromkeys(choices, ""),
        "closed": closed and bool(choices),
        "bounds": Bounds(**bounds),
        "first": first,
        "private": private,
        "scope": scope,
        "owner": owner,
        "code": code,
        "own": own,
        "read_by": read_by,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Group of settings. Building one checks the type, bounds and choices of every field. Raises ConfigError.

    The class arguments `scope`, `private` and `read_by` hold for all settings of the group: see `setting`.
    """

    _scope = "server"
    _private: ClassVar[tuple[Value, ...] | Literal[True]] = ()
    _read_by: ClassVar[tuple[dict[str, Reading], ...]] = ({},)

    def __init_subclass__(
        cls, scope: str = "", read_by: ReadBy | Sequence[ReadBy] = (), *, private: bool = False, **others: Any
    ) -> None:
        super().__init_subclass__(**others)
        cls._private = private or cls._private
        cls._scope, cls._read_by = scope or cls._scope, _alternatives(read_by) or cls._read_by

    def __post_init__(self) -> None:
        for entry, item in zip(self.entries(), fields(self), strict=True):
            entry.check(getattr(self, item.name))

    @classmethod
    @cache
    def keys(cls, prefix: str = "") -> Mapping[str, str]:
        """Setting key -> field name."""
        return {prefix + item.name.replace("_", "-"): item.name for item in fields(cls)}

    @classmethod
    def defaults(cls, prefix: str = "") -> dict[str, Value]:
        """Setting key -> default value."""
        return {entry.key: entry.default for entry in cls.entries(prefix)}

    @classmethod
    @cache
    def entries(cls, prefix: str = "") -> tuple[Entry, ...]:
        """Every setting of the group."""
        return tuple(cls._entry(prefix, item.name, item.metadata) for item in fields(cls))

    @classmethod
    def _entry(cls, prefix: str, name: str, declared: Mapping[str, Any]) -> Entry:
        scope, keys = SCOPES[declared["scope"] or cls._scope], cls.keys()
        alternatives = _alternatives(declared["read_by"]) or ({},)
        joined = [group | alternative for group in cls._read_by for alternative in alternatives]
        read_by = tuple(
            {prefix + owner if owner in keys else owner: reading for owner, reading in conditions.items()}
            for conditions in joined
            if conditions
        )
        key = prefix + name.replace("_", "-")
        private = declared["private"] or cls._private
        return Entry(key, **{**declared, "scope": scope, "private": private, "read_by": read_by})

    @classmethod
    def from_values(cls, values: Mapping[str, Value], prefix: str = "") -> Self:
        """Build the group from its keys in `values`. Absent keys keep their defaults. A number is also a text.

        Raises ConfigError for a value of the wrong type or out of range.
        """
        picked = {name: values[key] for key, name in cls.keys(prefix).items() if key in values}
        if not picked:
            return cls._defaults()
        own = {item.name: item for item in fields(cls)}
        for name, value in picked.items():
            expected, free = type(own[name].default), not own[name].metadata["choices"]
            if expected is float and type(value) is int and abs(value) < LARGEST:
                picked[name] = float(value)
            elif expected is str and free and type(value) in (int, float):
                picked[name] = str(value)
        return cls(**picked)

    @classmethod
    @cache
    def _defaults(cls) -> Self:
        return cls()

    def values(self, prefix: str = "") -> dict[str, Value]:
        """Setting key -> value."""
        return {key: getattr(self, name) for key, name in self.keys(prefix).items()}


def _alternatives(read_by: ReadBy | Sequence[ReadBy]) -> tuple[dict[str, Reading], ...]:
    return tuple(
        {owner: held if isinstance(held, Reading) else Reading(held) for owner, held in conditions.items()}
        for conditions in ([read_by] if isinstance(read_by, dict) else read_by)
    )


def refuse_unknown(values: Iterable[str], keys: Iterable[str]) -> None:
    """Raise ConfigError for a key that no group has, with the nearest known key."""
    keys = list(keys)
    for key in values:
        if key not in keys:
            hint = did_you_mean(key, keys) or " `fedsel settings --all` lists all of them."
            raise ConfigError(f"There is no setting '{key}'.{hint}")


def parse_named(text: str, setting: str, example: str) -> dict[str, Any]:
    """Name -> value of the TOML pairs in `text`, separated by commas: arguments of a library's function.

    Raises ConfigError with the name of `setting` and the `example`, for anything else.
    """
    try:
        parsed = tomllib.loads(f"named = {{{text}}}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    if list(parsed) != ["named"]:
        raise ConfigError(
            f"The '{setting}' parameter must be NAME=VALUE pairs, separated by commas, with text in quotes, such as "
            f"{example}. Got {text!r}. In a shell, keep the quotes like this: --set '{setting}={example}'."
        )
    return dict(parsed["named"])
