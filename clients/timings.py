"""What a client tells of its own speed: seconds of computing, and how its last upload went."""

import json
import math
import os
from pathlib import Path

from flwr.common import Scalar

UPLOAD_FILE = "FEDSEL_UPLOAD_FILE"
"""Environment variable with the path of a JSON file, {"bytes", "seconds"}: see `simulation.deployment.supernode`."""


def timings(compute_s: float) -> dict[str, Scalar]:
    """The metric compute_s, and where its last upload was timed upload-bytes and upload_s."""
    told: dict[str, Scalar] = {"compute_s": compute_s}
    try:
        last = json.loads(Path(os.environ[UPLOAD_FILE]).read_text(encoding="utf-8"))
        sent, seconds = int(last["bytes"]), float(last["seconds"])
    except (KeyError, OSError, ValueError, TypeError):
        return told
    return told | {"upload-bytes": sent, "upload_s": seconds} if sent > 0 and 0 < seconds < math.inf else told
