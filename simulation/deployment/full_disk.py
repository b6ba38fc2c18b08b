"""Full disks under a deployment: its processes end for want of room in words of their own, if they say anything."""

import errno
import os
import resource
import tempfile
from pathlib import Path

from fedsel_app.records.files import RecordError

PROBE_BYTES = 1 << 16


def refuse_full(folder: Path) -> None:
    """Raise RecordError for a file in the run folder that has reached the limit of file size, or if no other fits."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for path in sorted(folder.rglob("*")):
            if limit_bytes != resource.RLIM_INFINITY and path.is_file() and path.stat().st_size >= limit_bytes:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            left = PROBE_BYTES
            while left:
                left -= probe.write(bytes(left))
    except OSError as error:
        again = f"go on with: fedsel deploy --resume {folder}" if (folder / "config.json").exists() else "start again"
        raise RecordError(
            f"{error.filename or folder} cannot be written: {error.strerror}. What was written before is whole. Free "
            f"the disk, or lift the limit of file size or quota, then {again}"
        ) from error
