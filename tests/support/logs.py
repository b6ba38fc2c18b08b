"""Logs of a test, whatever handlers other tests have left behind."""

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def logged(name: str = "fedsel") -> Iterator[Callable[[], str]]:
    """Collect what the logger `name` logs; the function that is yielded returns it as text."""
    stream = io.StringIO()
    handler, logger = logging.StreamHandler(stream), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield stream.getvalue
    finally:
        logger.removeHandler(handler)
