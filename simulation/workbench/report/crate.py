"""Export of records (`fedsel export`): ro-crate-metadata.json with the hash of every file, the versions and commands.

The file follows RO-Crate 1.1 (https://w3id.org/ro/crate/1.1). It makes the folder of a run or a comparison a crate: a
data set whose parts, software and steps other programs can read.
"""

import hashlib
import json
import mimetypes
import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from clients.state import STATE_FOLDER
from fedsel_app.config import ConfigError, Value, changes_numbers
from fedsel_app.records.files import write_json
from fedsel_app.records.reading import read_object
from fedsel_app.records.run_folder import DATA, read_config
from fedsel_app.wiring.configuration import known_defaults
from simulation.apps.server.settings import OWN_APP
from simulation.engines.run_folders import read_summary
from simulation.workbench.comparison.plan_file import read_plan

NAME = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/crate/1.1"
BLOCK = 1 << 20
Entity = dict[str, Any]


def write_crate(folder: Path, license_text: str = "") -> Path:
    """Write ro-crate-metadata.json into the folder of a run or a comparison. Returns its path.

    Raises ConfigError if the folder has no run, or a run is not finished.
    """
    plan = read_plan(folder)
    runs = {folder.resolve().name: "."}
    if plan:  # A folder to which several commands added runs has the plan of the last one.
        runs = {path.parent.name: f"runs/{path.parent.name}" for path in sorted(folder.glob("runs/*/summary.json"))}
        runs |= {run["name"]: run["folder"] for run in plan["runs"]}
    parts, actions = _files(folder), []
    others: dict[str, Entity] = {}
    for name, inner in runs.items():
        action, found = _run(folder, name, Path(inner), [part["@id"] for part in parts])
        actions.append(action)
        others |= {entity["@id"]: entity for entity in found}
    ended = max(action["endTime"] for action in actions)
    kind = "comparison" if plan else "run"
    root: Entity = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"fedsel {kind} {folder.resolve().name}",
        "description": f"Records of a {kind} of federated learning: {len(runs)} runs.",
        "datePublished": ended,
        "license": license_text or "not stated",
        "hasPart": [{"@id": part["@id"]} for part in parts],
        "mentions": [{"@id": action["@id"]} for action in actions],
    }
    about = {"@id": NAME, "@type": "CreativeWork", "conformsTo": {"@id": PROFILE}, "about": {"@id": "./"}}
    graph = [about, root, *parts, *actions, *others.values()]
    write_json(folder / NAME, {"@context": f"{PROFILE}/context", "@graph": graph})
    return folder / NAME


def _files(folder: Path) -> list[Entity]:
    """An entity for every file of the records, with its size and SHA-256.

    The crate's own file, hidden files, locks and the states of clients are left out.
    """
    kept: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != STATE_FOLDER)
        paths = [Path(place, name) for name in sorted(names) if not name.startswith(".") and name != NAME]
        kept += [path for path in paths if path.suffix != ".lock" and path.is_file() and not path.is_symlink()]
    return [
        {
            "@id": _reference(path.relative_to(folder)),
            "@type": "File",
            "contentSize": str(path.stat().st_size),
            "sha256": _sha256(path),
            "encodingFormat": mimetypes.guess_type(path)[0] or "application/octet-stream",
        }
        for path in kept
    ]


def _reference(path: Path) -> str:
    """A relative path as a URI, which is how a crate names its files."""
    return quote(path.as_posix(), safe="/=,@+")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _run(folder: Path, name: str, inner: Path, files: Sequence[str]) -> tuple[Entity, list[Entity]]:
    """The action that made a run, and the software and the data that it used."""
    place = folder / inner
    summary, config = read_summary(place), read_config(place)
    if summary is None:
        raise ConfigError(f"Finish the run {name} first: there is no summary.json in {place}.")
    prefix = "" if inner == Path() else f"{_reference(inner)}/"
    software: list[Entity] = [
        {"@id": f"#{package}-{version}", "@type": "SoftwareApplication", "name": package, "version": version}
        for package, version in summary["versions"].items()
        if version is not None
    ]
    data = read_object(place / DATA) or {}
    used = [{"@id": f"#data-{data['digest']}", "@type": "Dataset", "name": str(config.get("data")),
             "identifier": f"blake2b:{data['digest']}", "description": json.dumps(data)}] if data else []  # fmt: skip
    written = datetime.fromtimestamp((place / "summary.json").stat().st_mtime, UTC)
    action: Entity = {
        "@id": f"#run-{quote(name)}",
        "@type": "CreateAction",
        "name": name,
        "description": command_of(config),
        "endTime": summary.get("ended") or written.isoformat(timespec="seconds"),
        "instrument": [{"@id": entity["@id"]} for entity in software],
        "object": [{"@id": entity["@id"]} for entity in used],
        "result": [{"@id": file} for file in files if file.startswith(prefix) and (prefix or "/" not in file)],
    }
    return action, [*software, *used]


def command_of(config: Mapping[str, Value]) -> str:
    """Command that repeats a run; for that of a user's own Flower app, a sentence."""
    if config.get("data") == OWN_APP:
        return "A Flower app of one's own, which fedsel cannot start; config.json has the settings of its strategy."
    defaults = known_defaults()
    changed = {key: value for key, value in config.items() if changes_numbers(key) and value != defaults.get(key)}
    words = ["fedsel", "run", "--strategy", str(config["strategy"]), "--seed", str(config["seed"])]
    for key, value in changed.items():
        if key not in ("strategy", "seed"):
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join(words)
