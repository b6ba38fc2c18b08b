"""Full disks: a limit of file size, which holds for root too."""

import resource
import sys
from contextlib import contextmanager

import pytest


@contextmanager
def no_file_above(limit):
    """Limit of file size: no file of this process grows beyond `limit` bytes, as on a full disk, for root too.

    As where `fedsel_app` is imported under such a limit, no bytecode is written meanwhile: what fits would stay.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
