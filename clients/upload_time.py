"""Upload time: in deployment, a client reads the bytes and seconds of its last upload, which its SuperNode measured."""

import json
import math
import os
from pathlib import Path

UPLOAD_FILE = "FEDSEL_UPLOAD_FILE"
"""Environment variable with the path of a JSON file, {"bytes", "seconds"}, which the SuperNode writes."""


def last_upload() -> tuple[int, float]:
    """Bytes and seconds of this client's last timed upload; zeros if there is none."""
    try:
        last = json.loads(Path(os.environ[UPLOAD_FILE]).read_text(encoding="utf-8"))
        sent_bytes = int(last["bytes"])
        seconds = float(last["seconds"])
    except (KeyError, OSError, ValueError, TypeError):
        return 0, 0.0
    return (sent_bytes, seconds) if sent_bytes > 0 and 0 < seconds < math.inf else (0, 0.0)
