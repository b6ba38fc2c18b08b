"""What is written behind the flags of the `fedsel` command."""

import tomllib
from contextlib import suppress

from fedsel_app.config import ConfigError, Value


def parse_setting(text: str) -> tuple[str, Value]:
    """KEY=VALUE, the value as TOML has it, or else (a date, too) plain text."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set takes KEY=VALUE. Got {text!r}.")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    if isinstance(parsed, list | dict):
        raise ConfigError(f"The '{key}' parameter must be true or false, a number or text. Got {value!r}.")
    return key, parsed if isinstance(parsed, bool | int | float | str) else value


def parse_grid(text: str) -> tuple[str, list[Value]]:
    """KEY=v1,v2: each value as `parse_setting` has it; text with a comma of its own in TOML's quotes."""
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ConfigError(f"--grid takes KEY=VALUE,VALUE. Got {text!r}.")
    with suppress(tomllib.TOMLDecodeError):
        listed = tomllib.loads(f"values = [{values}]")["values"]
        if all(isinstance(value, bool | int | float | str) for value in listed):
            return key.strip(), listed
    return key.strip(), [parse_setting(f"{key}={value.strip()}")[1] for value in values.split(",")]


def parse_seeds(text: str) -> list[int]:
    """Whole numbers with commas between them."""
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds takes whole numbers with commas between them. Got {text!r}.") from error


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number
