"""Full disks: a limit on the file size, which also applies to root."""

import resource
import sys
from contextlib import contextmanager

import pytest


@contextmanager
def no_file_above(limit):
    """Limit the file size of this process, also for root: no file grows beyond `limit` bytes, as on a full disk.

    Python writes no bytecode during the block, because an incomplete bytecode file would remain.
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
