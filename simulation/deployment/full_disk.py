"""Check for a full disk after a deployment failed. Its processes may end without saying that no room is left."""

import errno
import os
import resource
import tempfile
from pathlib import Path

from fedsel_app.records.files import RecordError

PROBE_BYTES = 1 << 16


def refuse_full(folder: Path) -> None:
    """Raise RecordError if a file in the run folder has the largest allowed size, or no other file fits on the disk."""
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
            f"{error.filename or folder} cannot be written: {error.strerror}. The records so far are complete. Free "
            f"disk space or raise the limit (file size or quota), then {again}"
        ) from error
