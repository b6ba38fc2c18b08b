"""Settings as keywords: each setting's key, with underscores for dashes and for the dot after a method's name."""

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, signature
from typing import Any, TypeVar, get_type_hints

from fedsel_app.config import ConfigError, Value
from simulation.experiments.configuration import known_defaults

Called = TypeVar("Called", bound=Callable[..., Any])
OWN_PARAMETERS = ("strategy", "seed", "out", "resume", "state-dir")
"""Settings that are parameters of their own, or that no simulation has."""


@cache
def setting_keys() -> dict[str, str]:
    """Keyword -> setting key, of all settings of the app and of its methods."""
    return {keyword_of(key): key for key in known_defaults() if key not in OWN_PARAMETERS}


def keyword_of(key: str) -> str:
    """Keyword of a setting."""
    return key.replace("-", "_").replace(".", "_")


def setting_values(keywords: Mapping[str, object], settings: Mapping[str, Value] | None) -> dict[str, Value]:
    """Setting key -> value: those of `settings`, by their keys, and those given as keywords.

    Raises
    ------
    ConfigError
        For a keyword that is no setting, naming the nearest one.
    """
    values: dict[str, Any] = dict(settings or {})
    values |= {key_of(keyword): value for keyword, value in keywords.items()}
    return values


def key_of(keyword: str) -> str:
    """Setting key of a keyword, or of a key itself. Raises ConfigError for any other."""
    known = setting_keys()
    key = known.get(keyword, keyword)
    if key not in known.values():
        near = [name for name in known if name.endswith(f"_{keyword}")] or difflib.get_close_matches(keyword, known, 1)
        hint = f"Did you mean {' or '.join(near)}?" if near else "docs/settings.md lists all of them."
        raise ConfigError(f"There is no setting '{keyword}'. {hint}")
    return key


def listed(keywords: type) -> Callable[[Called], Called]:
    """Decorator of a function of `**settings`: help and completion at run time list every keyword with its default.

    `keywords` is the TypedDict of the settings, which type checkers read.
    """

    def decorate(function: Called) -> Called:
        own, defaults, keys = signature(function), known_defaults(), setting_keys()
        first = [parameter for parameter in own.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD]
        rest = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[keys[name]], annotation=kind)
            for name, kind in get_type_hints(keywords).items()
        ]
        vars(function)["__signature__"] = own.replace(parameters=[*first, *rest])
        return function

    return decorate
