"""Checks of a method: its class when it is loaded, its instance after construction, and each selection."""

import inspect
import re
import reprlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, TrainingConfig
from fedsel_app.config.plugins import user_code
from strategies.method import SelectionMethod
from strategies.roster import MOST_WORK, Ints, Needs, Roster, RoundInfo, Selection
from strategies.run_context import RunContext

SELECTION = "Selection(clients), with clients an ascending array of distinct ids of available clients"
SHORT = reprlib.Repr()
"""Short representation of a method's return value."""
SHORT.maxlist, SHORT.maxother = 20, 100
WORK = ("local_steps", "local_epochs")
"""Fields of a selection with each client's own local work."""
NAME = re.compile(r"[\w-]+")
MethodT = TypeVar("MethodT", bound=SelectionMethod[Any])


def check_class(method: type[SelectionMethod[Any]], methods: Mapping[str, type[SelectionMethod[Any]]]) -> None:
    """Raise ConfigError with one sentence if a class is not a valid method. `methods` has fedsel's methods by name."""
    _refuse_class(method, _class_fault(method, methods))


def build(method: type[MethodT], context: RunContext) -> MethodT:
    """New instance of `method`, checked.

    Raises ConfigError with one sentence, if the constructor raises, omits an attribute or refuses the settings.
    """
    with user_code(method.__module__, f"`__init__` of the method {method.name}"):
        built = method(context)
    if not hasattr(built, "context"):
        _refuse_class(method, "its `__init__` must call super().__init__(context) first.")
    for name in method.state_fields:
        if not hasattr(built, name):
            _refuse_class(method, f"its `__init__` must set self.{name}, because its state_fields contain {name!r}.")
        value = getattr(built, name)
        if np.asarray(value).dtype.kind not in "biuf":
            _refuse_class(
                method, f"self.{name}, which is in its state_fields, must be a number or an array. Got {_shown(value)}."
            )
    return built


def _refuse_class(method: type[SelectionMethod[Any]], fault: str) -> None:
    if fault:
        raise ConfigError(f"The method {method.__module__}:{method.__qualname__} cannot be run: {fault}")


def _class_fault(method: type[SelectionMethod[Any]], methods: Mapping[str, type[SelectionMethod[Any]]]) -> str:
    for attribute, example in (("name", "mine"), ("paper", "our paper")):
        if not isinstance(getattr(method, attribute, None), str):
            return f'it needs a {attribute}, a string in the class: {attribute} = "{example}".'
    if not NAME.fullmatch(method.name):
        return f"its name may contain letters, digits, _ and -. Got {method.name!r}."
    if not issubclass(method, methods.get(method.name, method)):
        return f"its name {method.name!r} is the name of a method of fedsel. Give it another."
    for name in sorted(method.__abstractmethods__):
        parameters = inspect.signature(getattr(SelectionMethod, name)).parameters
        return f"it has no `{name}`. Write `def {name}({', '.join(parameters)})`."
    return _settings_fault(method) or _needs_fault(method)


def _settings_fault(method: type[SelectionMethod[Any]]) -> str:
    """Sentence on an invalid class of its settings; empty if it is valid."""
    annotations = inspect.get_annotations(method.Config).items()
    declared = {name for name, annotation in annotations if "ClassVar" not in str(annotation)}
    if not declared <= {item.name for item in fields(method.Config)}:
        return f"its settings {method.Config.__name__} must be a dataclass: put @dataclass(frozen=True) above them."
    for item in fields(method.Config):
        if "scope" not in item.metadata:
            return f"its settings need a meaning: write {item.name} = setting(default, 'what it is')."
    return ""


def _needs_fault(method: type[SelectionMethod[Any]]) -> str:
    """Sentence on an invalid result of its `needs` with default settings; empty if it is valid."""
    with user_code(method.__module__, f"`needs` of the method {method.name}"):
        needs = method.needs(method.Config())
    return "" if isinstance(needs, Needs) else f"its `needs` must return a Needs(...). Got {_shown(needs)}."


def candidates(
    method: SelectionMethod[Any], roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator
) -> Ints:
    """Candidates of `method` for a cohort of `count`, checked; none if it needs no probe.

    Raises ConfigError as `select` does.
    """
    needs = method.needs(method.config)
    if not needs.probed_numbers:
        return np.zeros(0, np.int64)
    with user_code(type(method).__module__, f"`candidates` of the method {method.name}"):
        clients = method.candidates(roster.known_to(needs), round_info, count, rng)
    _refuse(method, round_info, candidates_fault(clients, roster.ids))
    return clients


def select(
    method: SelectionMethod[Any], roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator
) -> Selection:
    """Selection of `count` clients by `method`, checked.

    Raises ConfigError with one sentence, if the selection is invalid or a user's own method raises.
    """
    with user_code(type(method).__module__, f"`select` of the method {method.name}"):
        selection = method.select(roster.known_to(method.needs(method.config)), round_info, count, rng)
    fault = (
        selection_fault(selection, roster.ids)
        or size_fault(selection, count, exact=method.exact_cohort)
        or work_fault(selection, roster, method.context.training)
    )
    _refuse(method, round_info, fault and f"`select` must return {SELECTION}. {fault}")
    return selection


def _refuse(method: SelectionMethod[Any], round_info: RoundInfo, fault: str) -> None:
    if fault:
        raise ConfigError(f"The method {method.name} cannot continue in round {round_info.number}: {fault}")


def candidates_fault(clients: object, available: Ints) -> str:
    """Sentence on invalid candidates from the ids `available`; empty if they are valid."""
    fault = _ids_fault(clients, "it", available)
    return fault and f"`candidates` must return an ascending array of distinct ids of available clients. {fault}"


def selection_fault(selection: object, available: Ints) -> str:
    """Sentence on an invalid selection from the ids `available`; empty if it is valid."""
    if not isinstance(selection, Selection):
        return f"It returned {_shown(selection)}."
    clients = selection.clients
    if fault := _ids_fault(clients, "clients", available):
        return fault
    if not isinstance(selection.components, Mapping):
        return f"Its 'components' must be a dict of arrays by name. Got {_shown(selection.components)}."
    for name, values in parts_of(selection).items():
        if not (isinstance(values, np.ndarray) and values.shape == clients.shape and values.dtype.kind in "iuf"):
            return f"Its '{name}' must be an array with one number for each selected client. Got {_shown(values)}."
        if not name.startswith("component") and not (np.isfinite(values).all() and (values >= 0).all()):
            return f"Its '{name}' must be finite and at least 0. Got {_list(values)}."
        if name == "kept_fractions" and not (values > 0).all():
            return f"Its '{name}' must be above 0. Got {_list(values)}."
        if name == "kept_fractions" and not (values <= 1).all():
            return f"Its '{name}' must be at most 1. Got {_list(values)}."
        if name in WORK and not (values.dtype.kind in "iu" and (values > 0).all()):
            return f"Its '{name}' must be whole numbers above 0. Got {_shown(values)}."
    return ""


def work_fault(selection: Selection, roster: Roster, training: TrainingConfig) -> str:
    """Sentence on local work that a method gives twice, or that is too long; empty if it is valid."""
    given = [name for name in WORK if getattr(selection, name) is not None]
    if len(given) > 1:
        return "It has 'local_steps' and 'local_epochs': leave out one of them."
    most = MOST_WORK * roster.local_steps[selection.clients]
    if not given or (selection.steps(roster, training) <= most).all():
        return ""
    return (
        f"Its '{given[0]}' must be at most {MOST_WORK} times the local work of the settings, here {_list(most)} steps. "
        f"Got {_list(getattr(selection, given[0]))}."
    )


def _ids_fault(ids: object, name: str, available: Ints) -> str:
    if not (isinstance(ids, np.ndarray) and ids.ndim == 1 and np.issubdtype(ids.dtype, np.integer)):
        return f"Here {name} is {_shown(ids)}."
    if not (np.diff(ids) > 0).all():
        return f"Here {name} is {_list(ids)}."
    strangers = ids[~np.isin(ids, available)]
    return f"Here {name} has {_list(strangers)}; the available ids are {_list(available)}." if strangers.size else ""


def size_fault(selection: Selection, count: int, *, exact: bool) -> str:
    """Sentence on an empty selection or, with `exact`, one without `count` clients; empty if it is valid."""
    size = selection.clients.size
    if size == count or (size and not exact):
        return ""
    remedy = "" if not size else ", or set exact_cohort = False in the class"
    return f"It selected {size} clients instead of {count}: select {count} clients{remedy}."


def parts_of(selection: Selection) -> dict[str, Any]:
    """Arrays of a selection by name."""
    optional = ("weights", "kept_fractions", "learning_rates", *WORK)
    given = {name: getattr(selection, name) for name in optional if getattr(selection, name) is not None}
    components = {f"component {name}": values for name, values in selection.components.items()}
    return {"clients": selection.clients, "scores": selection.scores} | given | components


def _list(values: NDArray[Any]) -> str:
    return SHORT.repr(values.tolist())


def _shown(value: object) -> str:
    """Kind and content of a value on one line."""
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    return f"{kind}, {' '.join(SHORT.repr(value).split())}"
