"""What Flower logs of an exception in fedsel's ServerApp."""

import io
import logging

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.server_app import SentenceAlone

NOTICE = "Exit Code: 201\n\nFor more information, visit: <https://example.org>"


@pytest.mark.parametrize("kind", [ConfigError, ValueError])
def test_only_the_sentence_of_a_config_error_is_logged(kind: type[Exception]) -> None:
    written = io.StringIO()
    logger = logging.Logger("flower")
    logger.addHandler(logging.StreamHandler(written))
    logger.addFilter(SentenceAlone())
    try:
        raise kind("Only 2 of 3 clients connected.")
    except kind as error:
        logger.error("%s raised an exception", "ServerApp", exc_info=error)
    logger.error(NOTICE)
    logger.warning("Later.")
    if kind is ConfigError:
        assert written.getvalue() == "Only 2 of 3 clients connected.\nLater.\n"
    else:
        assert written.getvalue().startswith("ServerApp raised an exception\nTraceback")
        assert written.getvalue().endswith(f"{NOTICE}\nLater.\n")
