"""Logs of a test, independent of the handlers and levels that other tests have left."""

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def logged(name: str = "fedsel") -> Iterator[Callable[[], str]]:
    """Collect the log of the logger `name`. The block gets a function that returns it as text."""
    stream = io.StringIO()
    handler, logger = logging.StreamHandler(stream), logging.getLogger(name)
    level, disabled = logger.level, logger.disabled
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.disabled = False
    try:
        yield stream.getvalue
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.disabled = disabled
