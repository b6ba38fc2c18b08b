"""Run and comparison folders with given numbers, so that every number of a report can be computed by hand."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsel_app.records.schema import RoundRecord, as_row
from fedsel_app.wiring.configuration import resolve

UPLINK = 250_000


def page_text(folder: Path) -> str:
    """Text of the page report.html in `folder`, without its markup."""
    body = (folder / "report.html").read_text(encoding="utf-8").partition("<body>")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def write_run(
    folder: Path,
    strategy: str,
    seed: int,
    accuracies: Sequence[float | None],
    *,
    finished: bool = True,
    selected: Sequence[Sequence[int]] = (),
    clients: int = 4,
    client_rows: Sequence[Mapping[str, Any]] = (),
    row: Mapping[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Write a run: each round takes 10 s and sends 0.25 MB up (values alone: 0.1 MB) and 0.5 MB down."""
    folder.mkdir(parents=True)
    settings = {key.replace("_", "-"): value for key, value in settings.items()}
    settings |= {"strategy": strategy, "seed": seed, "rounds": len(accuracies), "clients": clients, "cohort": 2}
    config = resolve({"target": 0.8} | settings).values()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    lines = []
    for number, accuracy in enumerate(accuracies, start=1):
        cohort = list(selected[number - 1]) if selected else [0, 1]
        record = RoundRecord(
            number,
            selected=cohort,
            aggregated=cohort,
            components={"loss": [0.5 + 0.1 * client for client in cohort]} if strategy == "hetero-select" else {},
            round_s=10.0,
            uplink_bytes=UPLINK,
            uplink_value_bytes=100_000,
            downlink_bytes=500_000,
            client_updates=len(cohort),
            wall_s=0.5,
            time_s=10.0 * number,
            total_uplink_bytes=UPLINK * number,
            total_uplink_value_bytes=100_000 * number,
            score=(row or {}).get("score"),
            accuracy=accuracy,
            loss=None if accuracy is None else 1.0 - accuracy,
        )
        lines.append(json.dumps(as_row(record) | (dict(row) if row else {})) + "\n")
    (folder / "rounds.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "clients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in client_rows), encoding="utf-8")
    if finished:
        (folder / "summary.json").write_text("{}", encoding="utf-8")


def write_plan(
    folder: Path, runs: Sequence[tuple[str, int, Mapping[str, Any]]], baseline: str = "random"
) -> list[Path]:
    """Write comparison.json over (strategy, seed, cell); the runs' folders, which do not exist yet."""
    names = [
        "-".join([strategy, *(f"{value}" for value in cell.values()), f"s{seed}"]) for strategy, seed, cell in runs
    ]
    planned = [
        {"name": name, "strategy": strategy, "seed": seed, "cell": dict(cell), "folder": f"runs/{name}"}
        for name, (strategy, seed, cell) in zip(names, runs, strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    content = {"version": 1, "settings": {"rounds": 4}, "baseline": baseline, "runs": planned}
    (folder / "comparison.json").write_text(json.dumps(content), encoding="utf-8")
    return [folder / "runs" / name for name in names]


def write_runs(
    folder: Path,
    runs: Sequence[tuple[str, int, Mapping[str, Any]]],
    accuracies: Sequence[float],
    baseline: str = "random",
) -> None:
    """Write a comparison over (strategy, seed, cell), each run of it with the same accuracies."""
    for path, (strategy, seed, _) in zip(write_plan(folder, runs, baseline), runs, strict=True):
        write_run(path, strategy, seed, accuracies)


def write_comparison(folder: Path) -> None:
    """Write three methods, three seeds, 4 rounds: random is slow, hetero-select fast, oort misses the target once."""
    curves = {
        "random": [[0.2, 0.5, 0.7, 0.85], [0.2, 0.5, 0.7, 0.81], [0.2, 0.5, 0.8, 0.8]],
        "hetero-select": [[0.5, 0.8, 0.8, 0.9], [0.5, 0.8, 0.8, 0.86], [0.8, 0.8, 0.8, 0.87]],
        "oort": [[0.3, 0.5, 0.7, 0.75], [0.3, 0.8, 0.8, 0.85], [0.3, 0.8, 0.8, 0.85]],
    }
    runs = [(strategy, seed, {}) for strategy in curves for seed in (1, 2, 3)]
    for path, (strategy, seed, _) in zip(write_plan(folder, runs), runs, strict=True):
        tests = [{"client": client, "round": 4, "accuracy": 0.6 + 0.1 * client} for client in range(4)]
        write_run(
            path, strategy, seed, curves[strategy][seed - 1], client_rows=tests, holdout_fraction=0.2, client_eval=True
        )
