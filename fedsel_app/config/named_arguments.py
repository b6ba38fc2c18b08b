"""Named arguments of another library's function in one setting: TOML pairs with commas between them."""

import tomllib
from typing import Any

from fedsel_app.config.settings import ConfigError


def parse_named(text: str, setting: str, example: str) -> dict[str, Any]:
    """Name -> value of the pairs in `text`.

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
            f"{example}. Got {text!r}."
        )
    return dict(parsed["named"])
