"""Node file: the SuperNodes that a SuperLink knows, in a SQLite database that outlives it."""

import sqlite3
from contextlib import closing
from pathlib import Path


class NodeFile:
    """Node file: one row of bytes for each node id, for its owner alone; threads may share it, and a write is whole.

    Raises sqlite3.Error where the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch(mode=0o600)
        path.chmod(0o600)
        with closing(self._open()) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS nodes (id TEXT PRIMARY KEY, info BLOB NOT NULL)")

    def read(self) -> dict[int, bytes]:
        """Read all nodes."""
        with closing(self._open()) as database:
            return {int(node_id): info for node_id, info in database.execute("SELECT id, info FROM nodes")}

    def write(self, node_id: int, info: bytes) -> None:
        """Write a node, in place of an earlier row."""
        with closing(self._open()) as database, database:
            database.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?)", (str(node_id), info))

    def remove(self, node_id: int) -> None:
        """Remove a node."""
        with closing(self._open()) as database, database:
            database.execute("DELETE FROM nodes WHERE id = ?", (str(node_id),))

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)
