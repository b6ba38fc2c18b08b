"""Validation of records: fields of a JSON object against the types that the schema declares."""

from collections.abc import Iterable, Mapping
from functools import cache
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from fedsel_app.config.settings import LARGEST


def check_fields(values: Mapping[str, Any], kind: type | None, needed: Iterable[str]) -> None:
    """Check that `values` have the fields `needed`, not null, and every field of the type that `kind` declares.

    Fields that it does not declare may hold anything; those of numbers may be null (NaN and infinity are written so).

    Raises
    ------
    ValueError
        Naming the field.
    """
    for name in needed:
        if values.get(name) is None:
            raise ValueError(f"'{name}' is missing")
    declared = {} if kind is None else declared_types(kind)
    for name, value in values.items():
        if name in declared and not fits(value, declared[name]):
            raise ValueError(f"'{name}' cannot be {_shown(value)}")


@cache
def declared_types(kind: type) -> dict[str, Any]:
    """Field name -> type of a dataclass or TypedDict."""
    return get_type_hints(kind)


def fits(value: Any, declared: Any) -> bool:
    """True if a value of JSON is of a declared type."""
    origin = get_origin(declared)
    arguments = get_args(declared)
    if origin is Annotated:
        return fits(value, arguments[0])
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is list:
        return isinstance(value, list) and all(fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, arguments[1]) for item in value.values())
    if is_typeddict(declared):
        types = declared_types(declared)
        has_needed = isinstance(value, dict) and declared.__required_keys__ <= value.keys()
        return has_needed and all(fits(value[name], types[name]) for name in types if name in value)
    if declared is float:
        return value is None or fits(value, int) or (type(value) is float and isfinite(value))
    if declared is int:
        return type(value) is int and abs(value) < LARGEST
    return isinstance(value, declared)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]}..."
