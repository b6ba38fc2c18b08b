"""Schema of a federation: what its server states of the data when a client enrols.

It is JSON in the instruction, with a number, a text or a list for each field. To a client it is a claim, so it is
checked before it is used. `fedsel_app.data.mapping` maps a client's own data to it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from fedsel_app.config import ConfigError
from fedsel_app.config.data import KINDS, MOST_CLASSES, TASKS

MOST_CHARACTERS = 1 << 24
"""Longest schema that a client reads."""
COLUMN = {"name": str, "kind": str, "type": str, "many": bool, "indicator": bool}
"""Field of a column -> type of its value. A column also has `categories` and `fill`."""


@dataclass(frozen=True)
class Schema:
    """Schema of a federation, in plain values.

    Attributes
    ----------
    task, classes, names : as of a `fedsel_app.data.dataset.Dataset`
    samples : type and shape of one sample, as (dtype, *shape); of several arrays by name, "" for a single one
    label : the server's argument of `data-arguments` of this name
    columns : fields of the `fedsel_app.data.tables.Column`s of a table, in their order; empty for other data
    mean, std : of each channel or feature; empty if they are not known yet
    """

    task: str
    classes: int
    samples: Mapping[str, Sequence[Any]]
    names: tuple[str, ...] = ()
    label: str = ""
    columns: tuple[Mapping[str, Any], ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """The schema as JSON."""
        return json.dumps(asdict(self))

    def follows(self, asked: "Schema") -> bool:
        """True if it is what was `asked`, or states the normalisation that this lacked."""
        return self == asked or (not asked.mean and replace(self, mean=(), std=()) == asked)

    def scaled(self, mean: Iterable[float], std: Iterable[float]) -> "Schema":
        """The schema with the mean and the standard deviation of each channel, (C,)."""
        return replace(self, mean=tuple(map(float, mean)), std=tuple(map(float, std)))


@lru_cache(maxsize=2)
def read_schema(text: str) -> Schema:
    """Read the schema that a server states. Raises ConfigError if it is not sound."""
    try:
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"it has more than {MOST_CHARACTERS:,} characters")
        values = json.loads(text)
        values |= {key: tuple(values[key]) for key in ("names", "columns", "mean", "std")}
        values["samples"] = {name: tuple(kind) for name, kind in values["samples"].items()}
        schema = Schema(**values)
        if wrong := [name for name, sound in _judged(schema) if not sound]:
            raise ValueError(f"wrong {' and '.join(wrong)}")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigError(f"The schema that the server states cannot be read: {error}.") from error
    return schema


def _judged(schema: Schema) -> list[tuple[str, bool]]:
    """Each field, and whether it is sound."""
    channels = len(schema.mean)
    finite = all(type(number) is float and math.isfinite(number) for number in (*schema.mean, *schema.std))
    kinds = [kind for kind, *_ in schema.samples.values()]
    shapes = [size for _, *shape in schema.samples.values() for size in shape]
    allowed = (0, 1, *schema.samples.get("", ())[1:2])
    return [
        ("task", schema.task in TASKS),
        ("classes", type(schema.classes) is int and 1 <= schema.classes <= MOST_CLASSES),
        ("samples", all(type(size) is int and size >= 1 for size in shapes)),
        ("texts", all(type(text) is str for text in (*kinds, *schema.names, schema.label))),
        ("number of names", len(set(schema.names)) == len(schema.names) in (0, schema.classes)),
        ("mean", finite and channels in allowed),
        ("std", finite and len(schema.std) == channels and min(schema.std, default=1.0) > 0.0),
        *((f"column {number}", _is_sound(column)) for number, column in enumerate(schema.columns, 1)),
    ]


def _is_sound(column: Mapping[str, Any]) -> bool:
    fill = column["fill"] is None or type(column["fill"]) is (str if column["kind"] == "category" else float)
    typed = all(type(column[name]) is kind for name, kind in COLUMN.items())
    categories = type(column["categories"]) is list and all(type(text) is str for text in column["categories"])
    return fill and typed and categories and column["kind"] in KINDS and len(column) == len(COLUMN) + 2
