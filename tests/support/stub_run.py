"""Stub of `fedsel run`: the same arguments, a run folder in the same form, numbers made from the settings.

STUB, a JSON object in the environment, may contain:

- "sleep_s": seconds per round;
- "hang": runs that do not get beyond round 1;
- "fail": runs that end with an error after round 1, for this "reason";
- "kill": a run that is killed after its first round; "always": also after it is resumed; "signal": with another signal
  than SIGKILL; "victim" is "server": its parent is killed;
- "checkpoint": whether to write checkpoints in all rounds but the last;
- "grandchild": whether to start a process that ignores SIGTERM.

Every start and end writes a line to starts.log, beside the comparison's runs/.
"""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"


def main() -> None:
    stub = json.loads(os.environ.get("STUB", "{}"))
    command, option, path, *rest = sys.argv[1:]
    assert command == "run"
    if option == "--resume":
        folder = Path(path)
        config = json.loads((folder / "config.json").read_text())
        checkpoint = folder / "checkpoint.npz"
        done = int(checkpoint.read_text()) if checkpoint.exists() else 0
        records = folder / "rounds.jsonl"
        if records.exists():
            records.write_text("".join(records.read_text().splitlines(keepends=True)[:done]))
    else:
        assert (option, rest[0]) == ("--preset", "--out")
        folder, done = Path(rest[1]), 0
        config = tomllib.loads(Path(path).read_text()) | {"out": rest[1], "state-dir": rest[1]}
        folder.mkdir(exist_ok=True)
        write_whole(folder / "config.json", json.dumps(config))
    report(folder, f"start after {done}")
    if stub.get("grandchild"):
        subprocess.Popen([sys.executable, "-c", DEAF, str(folder)], start_new_session=True)
    for number in range(done + 1, config["rounds"] + 1):
        time.sleep(300 if number > 1 and folder.name in stub.get("hang", ()) else stub.get("sleep_s", 0))
        row = {"round": number, "accuracy": number / 10 + config["seed"] / 100, "selected": [], "failures": []}
        row |= {"round_s": 2.5, "wall_s": 0.1, "time_s": 2.5 * number, "total_uplink_value_bytes": 0}
        with (folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(row | {"total_uplink_bytes": 1_000_000 * number}) + "\n")
        if stub.get("checkpoint") and number < config["rounds"]:
            write_whole(folder / "checkpoint.npz", str(number))
        if folder.name == stub.get("kill") and (option == "--preset" or stub.get("always")):
            victim = os.getppid() if stub.get("victim") == "server" else os.getpid()
            os.kill(victim, signal.Signals[stub.get("signal", "SIGKILL")])
            time.sleep(30)
        if folder.name in stub.get("fail", ()):
            print(f"all is well\nfedsel: {stub.get('reason', 'The round failed.')}\n", flush=True)
            sys.exit(1)
    summary = {
        "final_accuracy": row["accuracy"],
        "stable_accuracy": 0.5,
        "stable_validation_accuracy": 0.5,
        "rounds_to_target": None,
        "failure_count": 0,
        "wall_s": 0.2,
    }
    summary |= {"time_to_target_s": None, "uplink_to_target_mb": None, "target_accuracy": 0.9}
    summary |= {"strategy": config["strategy"], "seed": config["seed"]}
    write_whole(folder / "summary.json", json.dumps(summary))
    report(folder, "end")


def write_whole(path: Path, text: str) -> None:
    """Write a file as `fedsel run` does: a killed process leaves no incomplete file under this name."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


def report(folder: Path, event: str) -> None:
    with (folder.parent.parent / "starts.log").open("a") as file:
        file.write(f"{folder.name}: {event}\n")


main()
