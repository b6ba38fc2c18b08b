"""Reading of records: checks JSON objects and JSON lines against the schema. An error is one sentence."""

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Union, get_args, get_origin, get_type_hints, is_typeddict

from fedsel_app.config import ConfigError
from fedsel_app.config.settings import LARGEST
from fedsel_app.records.schema import (
    ACCURACY,
    ClientTestRecord,
    EnrolmentRecord,
    IdentityConflict,
    RoundRecord,
    Row,
    score_name,
    without_version,
)

Check = Callable[[Row], None]
"""Check of a row: raises ValueError if the row does not have the form of its file."""
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_declared_types = cache(get_type_hints)


def check_round(row: Row) -> None:
    """Check a row of rounds.jsonl."""
    needed = ("round", "selected", "failures", "round_s", "wall_s", "time_s")
    check_fields(row, RoundRecord, (*needed, "total_uplink_bytes", "total_uplink_value_bytes"))


def check_client(row: Row) -> None:
    """Check a row of clients.jsonl."""
    if "outcome" in row:
        check_fields(row, IdentityConflict, ("round", "node"))
    elif "examples" in row:
        check_fields(row, EnrolmentRecord, ("client", "round"))
    else:
        check_fields(row, ClientTestRecord, ("client", "round"))


def read_rows(path: Path, check: Check) -> list[Row]:
    """Rows of a JSON-lines file, none if it is absent. An incomplete last line is left out.

    Raises ConfigError if a row is damaged, or has a version that this fedsel does not read.
    """
    return list(rows_from_end(path, check, None))[::-1]


def rows_from_end(path: Path, check: Check, last_bytes: int | None) -> Iterator[Row]:
    """Rows as from `read_rows`, newest first: those in the last bytes (None: all), and at least one if there is one."""
    with _damage("The records", path), _regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        start = 0 if last_bytes is None else max(0, size - last_bytes)
        file.seek(start)
        text = file.read(size - start)
        whole = text[: text.rfind(b"\n") + 1].splitlines()
        if start:
            del whole[:1]
        if last_bytes and start and not whole:
            yield from rows_from_end(path, check, 4 * last_bytes)
        for line in reversed(whole):
            row = legible(json.loads(line), lines=False)
            if not isinstance(row, dict):
                raise ValueError("a line is not a JSON object")
            row = without_version(row)
            check(row)
            yield row


def read_object(path: Path, kind: type | None = None, needed: Iterable[str] = ()) -> dict[str, Any] | None:
    """The object in a JSON file, None if the file is absent.

    Raises ConfigError if it is not a JSON object, or if its fields do not pass `check_fields`.
    """
    with _damage("The file", path), _regular(path) as file:
        content = legible(json.loads(file.read()))
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        check_fields(content, kind, needed)
        return content
    return None


@contextmanager
def _damage(what: str, path: Path) -> Iterator[None]:
    """Convert the errors of a damaged file to a ConfigError that names it. An absent file only ends the block."""
    try:
        yield
    except ConfigError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} {path} cannot be read: {error}.") from error


@contextmanager
def _regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Reading a pipe could wait forever."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is not a regular file")
        yield file


def check_fields(values: Mapping[str, Any], kind: type | None, needed: Iterable[str]) -> None:
    """Check that `values` has the fields `needed`, not null, and that each field has the type that `kind` declares.

    Fields that `kind` does not declare may have any value. A float may be null, which stands for NaN and infinity. The
    fields of the score have its own name, as in `as_row`.

    Raises ValueError if a field does not pass; the message names it.
    """
    for name in needed:
        if values.get(name) is None:
            raise ValueError(f"'{name}' is missing")
    score = score_name(values)
    declared = {} if kind is None else {name.replace(ACCURACY, score): of for name, of in _declared_types(kind).items()}
    for name, value in values.items():
        if name in declared and not fits(value, declared[name]):
            raise ValueError(f"'{name}' cannot be {_shown(value)}")


def fits(value: Any, declared: Any) -> bool:
    """True if a value of JSON is of a declared type."""
    origin = get_origin(declared)
    arguments = get_args(declared)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is list:
        return isinstance(value, list) and all(fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, arguments[1]) for item in value.values())
    if is_typeddict(declared):
        types = _declared_types(declared)
        has_needed = isinstance(value, dict) and declared.__required_keys__ <= value.keys()
        return has_needed and all(fits(value[name], types[name]) for name in types if name in value)
    if declared is float:
        return value is None or fits(value, int) or (type(value) is float and isfinite(value))
    if declared is int:
        return type(value) is int and abs(value) < LARGEST
    return isinstance(value, declared)


def legible(value: Any, *, lines: bool = True) -> Any:
    """A copy of the value that is safe to print: texts from files of others may contain commands for the terminal.

    An escape such as \\x1b replaces each control character except newline and tab, each mark that changes the direction
    of text, and each half of a character; unless `lines`, each newline too. Lists and dictionaries are searched for
    texts.
    """
    if isinstance(value, str):
        inert = OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), value)
        return inert if lines else inert.replace("\n", "\\n")
    if isinstance(value, dict):
        return {legible(key, lines=lines): legible(item, lines=lines) for key, item in value.items()}
    return [legible(item, lines=lines) for item in value] if isinstance(value, list) else value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]}..."
