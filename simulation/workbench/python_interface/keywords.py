"""Keywords of settings: the key of the setting, with underscores for dashes and for the dot after a method's name."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar

from fedsel_app.config import DECLARED, ConfigError, Value
from fedsel_app.config.settings import Entry, did_you_mean, plain_value, setting_value
from fedsel_app.wiring.configuration import setting_entries

Called = TypeVar("Called", bound=Callable[..., Any])


def keyword_entries() -> list[Entry]:
    """Settings of the app and of its methods that have a keyword: those that runs may share."""
    return [entry for entry in setting_entries() if not entry.own]


@cache
def setting_keys() -> dict[str, str]:
    """Keyword -> setting key."""
    return {keyword_of(entry.key): entry.key for entry in keyword_entries()}


def keyword_of(key: str) -> str:
    """Keyword of a setting."""
    return key.replace("-", "_").replace(".", "_")


def setting_values(keywords: Mapping[str, object], settings: Mapping[str, Value] | None) -> dict[str, Value]:
    """Setting key -> value: those of `settings`, by their keys, and those given as keywords.

    Raises ConfigError for a keyword that is not a setting. The message names the nearest keyword.
    """
    values: dict[str, Any] = {key: setting_value(value) for key, value in (settings or {}).items()}
    values |= {key_of(keyword): setting_value(value) for keyword, value in keywords.items()}
    return values


def several(values: object) -> list[Any]:
    """A list: the entries of a list, a tuple or an array; any other value, text too, is its only entry."""
    plain = plain_value(values)
    return list(map(plain_value, plain)) if isinstance(plain, Iterable) and not isinstance(plain, str) else [plain]


def key_of(keyword: str) -> str:
    """Setting key of a keyword; a key is returned unchanged. Raises ConfigError for an identifier that is neither.

    Any other text may be a key of a user's own method, and is checked with the values.
    """
    keys = setting_keys()
    key = keys.get(keyword, keyword)
    if key.isidentifier() and key not in keys.values() and key not in DECLARED:
        raise ConfigError(f"There is no setting '{keyword}'.{did_you_mean(keyword, keys)}")
    return key


def listed(function: Called) -> Called:
    """Decorate a function with `**keywords` so that `help` and completion list every keyword with its default.

    Type checkers and editors read the keywords from the stub setting_keywords.pyi.
    """
    plain = signature(function)
    first = [parameter for parameter in plain.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD]
    choice: Any = Literal
    rest = [
        Parameter(
            keyword_of(entry.key),
            Parameter.KEYWORD_ONLY,
            default=entry.default,
            annotation=choice[tuple(entry.choices)] if entry.closed else type(entry.default),
        )
        for entry in keyword_entries()
    ]
    vars(function)["__signature__"] = plain.replace(parameters=[*first, *rest])
    return function
