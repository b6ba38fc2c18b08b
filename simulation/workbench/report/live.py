"""Live page of a comparison, a tuning or a run (`fedsel watch --html`), built from the record files alone.

Only this machine reaches the server. Its one page has a secret address, because all users of a machine share loopback.
A website that has its own name resolve to 127.0.0.1 is refused by the name (DNS rebinding).
"""

import hmac
import secrets
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from matplotlib.ticker import MaxNLocator
from rich.console import Console

from fedsel_app.config import ConfigError
from fedsel_app.config.run import score_title
from fedsel_app.records.reading import check_round, read_rows
from fedsel_app.records.schema import schedule_round, score_name
from simulation.workbench.comparison.watch import ENDED, Progress, left_line, read_progress
from simulation.workbench.report.drawing import LINES, TICKS, look, look_positions
from simulation.workbench.report.page import html
from simulation.workbench.report.tables import Heading, Table

HOST, NAMES = "127.0.0.1", ("127.0.0.1", "localhost")
REFRESH_S = 2.0
LAST_S = 60.0
"""Maximum time in seconds for which the last page waits for a browser."""
DASHES = dict(zip(LINES, ("", "7 4", "7 4 1 4", "1 4"), strict=True))
"""Line style of the report's figures -> dashes in SVG."""
MOST_CELLS, MOST_FAILURES, MOST_POINTS = 12, 20, 300


@dataclass
class RunRecords:
    """What the page shows of the finished rounds of a run.

    Attributes
    ----------
    points : round and score of each evaluation
    failures : round, client and reason of each client without a usable reply
    last : clients that were asked in the last round
    """

    points: list[tuple[int, float]] = field(default_factory=list)
    failures: list[tuple[int, int, str]] = field(default_factory=list)
    last: list[int] = field(default_factory=list)


@lru_cache(maxsize=1024)
def read_records(path: Path, _written: tuple[int, int]) -> RunRecords:
    """Records of the rounds.jsonl at `path`; `_written`, its size and time, is part of the cache's key."""
    records = RunRecords()
    for row in read_rows(path, check_round):
        score = row.get(score_name(row))
        records.points += [] if score is None else [(schedule_round(row), score)]
        records.failures += [(row["round"], failure["client"], failure["reason"]) for failure in row["failures"]]
        records.last = row["selected"]
    return records


def records_of(run: Progress) -> RunRecords:
    """Records of the finished rounds of a run; empty before the first."""
    path = run.folder / "rounds.jsonl"
    if not (run.method and path.is_file()):
        return RunRecords()
    written = path.stat()
    return read_records(path, (written.st_size, written.st_mtime_ns))


def page_of(folder: Path, nonce: str) -> tuple[str, bool]:
    """HTML of the page on `folder`, which names a file that cannot be read; and True if all runs have ended."""
    values: dict[str, Any] = {"title": folder.absolute().name, "nonce": nonce, "dashes": DASHES}
    values["refresh_ms"] = int(1000 * REFRESH_S)
    try:
        runs = read_progress(folder)
        shown = [(run, records_of(run)) for run in runs]
    except (ConfigError, OSError) as error:
        return html("live", **values, left="", notes=[str(error)]), False
    values |= {"left": left_line(runs), "ended": all(run.state in ENDED for run in runs), "pictures": pictures(shown)}
    values["tables"] = [table for table in (failure_table(shown), run_table(shown)) if table.rows]
    return html("live", **values), values["ended"]


def pictures(runs: Sequence[tuple[Progress, RunRecords]]) -> list[dict[str, Any]]:
    """Pictures of the score against rounds, one for each cell of the grid, or one if there are many cells."""
    drawn = [(run, records.points) for run, records in runs if records.points]
    cells = list(dict.fromkeys(run.cell for run, _ in drawn))
    positions = look_positions({run.method: run.method for run, _ in drawn})
    if len(cells) <= MOST_CELLS:
        return [_picture(cell, [one for one in drawn if one[0].cell == cell], positions) for cell in cells]
    return [_picture("", drawn, positions)]


def _picture(
    cell: str, runs: Sequence[tuple[Progress, list[tuple[int, float]]]], positions: dict[str, int]
) -> dict[str, Any]:
    values = [value for _, points in runs for _, value in points]
    ticks = MaxNLocator(TICKS).tick_values(min(values), max(values))
    rounds, low, span = max(run.rounds or 1 for run, _ in runs), ticks[0], ticks[-1] - ticks[0]
    curves, last = [], dict[str, list[float]]()
    for run, points in runs:
        every = -(-len(points) // MOST_POINTS)
        places = [
            f"{100.0 * number / rounds:.2f},{100.0 * (1.0 - (value - low) / span):.2f}"
            for number, value in [*points[:-1:every], points[-1]]
        ]
        curves.append((" ".join(places), look(positions[run.method])))
        last.setdefault(run.method, []).append(points[-1][1])
    title = " or ".join(dict.fromkeys(score_title(run.score_name) for run, _ in runs))
    return {
        "title": f"{cell}: {title}".removeprefix(": "),
        "rounds": rounds,
        "curves": curves,
        "ticks": [(f"{tick:.6g}", f"{100.0 * (1.0 - (tick - low) / span):.2f}") for tick in ticks],
        "legend": [
            (name, f"{statistics.fmean(of):.4f}", f"({len(of)} runs)" if len(of) > 1 else "", look(positions[name]))
            for name, of in last.items()
        ],
    }


def run_table(runs: Sequence[tuple[Progress, RunRecords]]) -> Table:
    """Table of the runs, those that train first, with the clients of the last round."""
    order = sorted(runs, key=lambda run: ("started", "failed", "waiting", "finished").index(run[0].state))
    columns = [Heading("run"), Heading("state"), Heading("round"), Heading("score", 4), Heading("MB sent", 3)]
    columns += [Heading("seconds", 1), Heading("last round"), Heading("clients' failures")]
    columns += [Heading("asked in the last round")]
    rows: list[list[Any]] = []
    for run, records in order:
        ended = run.state in ENDED
        number = "" if run.rounds is None else f"{run.round}/{run.rounds}"
        age = "" if run.age_s is None or ended else f"{run.age_s:.0f} s ago"
        asked = "" if ended else ", ".join(map(str, records.last[:10])) + (" ..." if len(records.last) > 10 else "")
        numbers = [run.score, run.uplink_mb, run.time_s]
        rows.append([run.name, run.state, number, *numbers, age, str(len(records.failures) or ""), asked])
    return Table("runs", "Runs", "", columns, rows)


def failure_table(runs: Sequence[tuple[Progress, RunRecords]]) -> Table:
    """Table of what failed: the processes of runs, then the newest failures of clients."""
    rows = [[run.name, "", "", run.reason] for run, _ in runs if run.reason]
    of_clients = [
        [run.name, str(number), str(client), reason]
        for run, records in runs
        for number, client, reason in records.failures[: -MOST_FAILURES - 1 : -1]
    ]
    rows += of_clients[:MOST_FAILURES]
    caption = f"Of the clients' failures, the newest {MOST_FAILURES}." if len(of_clients) > MOST_FAILURES else ""
    return Table("failures", "What failed", caption, [*map(Heading, ("run", "round", "client", "reason"))], rows)


class LiveServer(ThreadingHTTPServer):
    """Server of one page on a free port of loopback; `text` is the page, and `last_sent` is set after the last one."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__((HOST, 0), LiveHandler)
        self._folder, self._nonce = folder, secrets.token_urlsafe(16)
        self.path = f"/{secrets.token_urlsafe(16)}"
        self.policy = (
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{self._nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self.last_sent = threading.Event()
        self.refresh()

    def refresh(self) -> None:
        """Build the page anew."""
        self.text, self.ended = page_of(self._folder, self._nonce)


class LiveHandler(BaseHTTPRequestHandler):
    """Answer to one browser: the page at its address, for the names of this machine only."""

    timeout = 10.0
    server_version, sys_version = "fedsel", ""

    def do_GET(self) -> None:
        """Send the page; 403 for another name of the server, 404 for another path."""
        server = cast("LiveServer", self.server)
        if self.headers.get("Host", "").partition(":")[0] not in NAMES:
            self.send_error(HTTPStatus.FORBIDDEN)
        elif not hmac.compare_digest(self.path.encode(), server.path.encode()):
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            ended, body = server.ended, server.text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", server.policy)
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)
            if ended:
                server.last_sent.set()

    def log_message(self, *words: object) -> None:
        """Print nothing."""


def serve(folder: Path, console: Console) -> None:
    """Serve the live page of `folder` until all runs have ended and a browser has the last page, or until Ctrl-C.

    Raises ConfigError if the folder has no run, comparison or tuning.
    """
    read_progress(folder)
    with LiveServer(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://{HOST}:{server.server_port}{server.path}"
        console.print(
            f"Live page: {address}\nIt ends with the last run, or with Ctrl-C.", highlight=False, soft_wrap=True
        )
        while not server.ended:
            time.sleep(REFRESH_S)
            server.refresh()
        server.last_sent.wait(LAST_S)
        server.shutdown()
    console.print(f"All runs have ended. Next: fedsel report {folder}", markup=False, highlight=False, soft_wrap=True)
