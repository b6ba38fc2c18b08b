"""Reader of offline files of Weights & Biases: blocks of LevelDB's log format with protobuf records."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, 7
FULL, LAST = 1, 4


def messages(path: Path) -> Iterator[bytes]:
    """Records of one file, without an incomplete one at its end."""
    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, parts = HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + HEADER])
        position += HEADER
        parts += data[position : position + length]
        position += length
        if kind in (FULL, LAST):
            yield parts
            parts = b""


def read_parts(folder: Path) -> list[tuple[str, dict[int, dict[str, Any]], dict[str, Any]]]:
    """Run id, history (step -> numbers) and summary of every part of the runs below `folder`, the oldest first."""
    from wandb.proto import wandb_internal_pb2

    found = []
    for path in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb")):
        run_id, history, summary = "", {}, {}
        for message in messages(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            if record.HasField("run"):
                run_id = record.run.run_id
            elif record.HasField("history"):
                values = {item.key or ".".join(item.nested_key): item for item in record.history.item}
                numbers = {name: json.loads(item.value_json) for name, item in values.items()}
                history[numbers.pop("_step")] = {k: value for k, value in numbers.items() if not k.startswith("_")}
            elif record.HasField("summary"):
                for item in record.summary.update:
                    summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
        found.append((run_id, history, summary))
    return found
