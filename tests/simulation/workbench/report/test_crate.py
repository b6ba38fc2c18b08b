"""Export of records: the crate of a comparison has the hash of every file, and commands that repeat its runs."""

import hashlib
import json
import os
import shlex
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.workbench.cli import main, parser
from simulation.workbench.command_line.arguments import overrides
from simulation.workbench.comparison.plan_file import PLAN_VERSION
from simulation.workbench.report.crate import NAME, write_crate
from tests.support.in_process import run_config

SETTINGS = {"strategy": "oort", "seed": 3, "rounds": 2, "clients": 6, "cohort": 2, "lr": 0.1, "error-feedback": False}
SETTINGS |= {"oort.penalty": 1.5, "data-arguments": ""}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crate") / "a run"
    run_config(folder, resolve(SETTINGS))
    return folder


def test_the_crate_has_hashes_versions_and_commands(run, capsys):
    assert main(["export", str(run), "--license", "CC-BY-4.0"]) == 0
    assert str(run / NAME) in capsys.readouterr().out
    first = (run / NAME).read_bytes()
    content = json.loads(first)
    entities = {entity["@id"]: entity for entity in content["@graph"]}
    assert entities[NAME]["conformsTo"] == {"@id": content["@context"].removesuffix("/context")}
    root = entities["./"]
    assert (root["@type"], root["license"]) == ("Dataset", "CC-BY-4.0")
    files = {part["@id"] for part in root["hasPart"]}
    assert files == {path.name for path in run.iterdir() if path.is_file()} - {NAME}
    assert (run / "state").is_dir()
    for name in files:
        assert entities[name]["sha256"] == hashlib.sha256((run / name).read_bytes()).hexdigest()
        assert entities[name]["contentSize"] == str((run / name).stat().st_size)
    [action] = [entity for entity in entities.values() if entity["@type"] == "CreateAction"]
    assert {part["@id"] for part in action["result"]} == files
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    used = {entities[part["@id"]]["name"]: entities[part["@id"]]["version"] for part in action["instrument"]}
    assert used == {name: version for name, version in summary["versions"].items() if version}
    digest = json.loads((run / "data.json").read_text(encoding="utf-8"))["digest"]
    assert [part["@id"] for part in action["object"]] == [f"#data-{digest}"]
    references = json.dumps([part for entity in content["@graph"] for part in entity.get("hasPart", [])])
    assert all(json.dumps(part["@id"]) in references for part in root["hasPart"])
    assert main(["export", str(run), "--license", "CC-BY-4.0"]) == 0
    assert (run / NAME).read_bytes() == first


def test_the_end_of_a_run_is_not_that_of_its_copy(run, tmp_path):
    """It was the time at which summary.json was written: that of a copy, a clone or an unpacked archive."""
    shutil.copytree(run, tmp_path / "copy")
    os.utime(tmp_path / "copy" / "summary.json", (0, 0))
    graph = json.loads(write_crate(tmp_path / "copy").read_text(encoding="utf-8"))["@graph"]
    [action] = [entity for entity in graph if entity["@type"] == "CreateAction"]
    ended = datetime.fromisoformat(action["endTime"])
    assert timedelta() < datetime.now(UTC) - ended < timedelta(hours=1)
    [root] = [entity for entity in graph if entity["@id"] == "./"]
    assert root["datePublished"] == action["endTime"]


def test_the_names_of_files_and_runs_are_uris(run, tmp_path):
    shutil.copytree(run, tmp_path / "a run")
    (tmp_path / "a run" / "notes 50%, lr=0.1.txt").touch()
    graph = json.loads(write_crate(tmp_path / "a run").read_text(encoding="utf-8"))["@graph"]
    [action] = [entity for entity in graph if entity["@type"] == "CreateAction"]
    assert (action["@id"], action["name"]) == ("#run-a%20run", "a run")
    assert "notes%2050%25,%20lr=0.1.txt" in [part["@id"] for part in action["result"]]


def test_the_command_of_a_run_gives_its_settings_again(run):
    main(["export", str(run)])
    graph = json.loads((run / NAME).read_text(encoding="utf-8"))["@graph"]
    [command] = [entity["description"] for entity in graph if entity["@type"] == "CreateAction"]
    _, *words = shlex.split(command)
    given = resolve(overrides(parser().parse_args(words)))
    assert given == resolve(SETTINGS)


def test_an_unfinished_run_is_not_exported(run, tmp_path, capsys):
    for name in ("config.json", "rounds.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert main(["export", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("fedsel: Finish the run ")


def test_a_crate_has_all_runs_of_a_folder_to_which_commands_added_some(run, tmp_path):
    """The plan is that of the last command, with the run `b`."""
    for name in ("a", "b"):
        shutil.copytree(run, tmp_path / "runs" / name)
    plan = {"version": PLAN_VERSION, "runs": [{"name": "b", "folder": "runs/b"}]}
    (tmp_path / "comparison.json").write_text(json.dumps(plan), encoding="utf-8")
    graph = json.loads(write_crate(tmp_path).read_text(encoding="utf-8"))["@graph"]
    assert [entity["name"] for entity in graph if entity["@type"] == "CreateAction"] == ["a", "b"]
