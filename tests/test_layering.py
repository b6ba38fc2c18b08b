"""Imports run one way, randomness has one source, nothing is pickled, files stay small."""

import ast
import re
import sys
from functools import cache
from graphlib import TopologicalSorter

import pytest

from tests.support.sources import ROOT, nodes

TOPS = ("fedsel_app", "strategies", "clients", "simulation")
FILES = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py"))
NAMES = [path.relative_to(ROOT).as_posix() for path in FILES]
LEAVES = ("config", "messages", "network", "wire")
FLOWER_INTERNALS = tuple(
    f"flwr.{name}"
    for name in ("cli.", "compat.", "proto.", "server.superlink", "simulation.", "supercore", "superlink", "supernode")
)
ENTRY_POINTS = {
    *(f"fedsel_app/{name}.py" for name in ("__init__", "server_app", "flower_client")),
    "simulation/workbench/cli.py",
}
WIRING = {name for name in NAMES if name.startswith("fedsel_app/wiring/")}
OF_CLIENTS = {"fedsel_app/flower_client.py", *(f"fedsel_app/wiring/client{end}.py" for end in ("", "_settings"))}
OF_CLIENTS |= {name for name in NAMES if name.startswith("simulation/apps/client/")}
MOST_KNOWN = 10
"""Names of fedsel that the guard may import."""
FORBIDDEN = {
    "strategies": {"clients", "simulation", "torch"},
    "clients": {"strategies", "simulation"},
    "fedsel_app": {"strategies", "clients", "simulation"},
    "simulation": set[str](),
}


@cache
def imports(name: str) -> list[str]:
    """Modules that a file imports, and the names that it imports from them."""
    found = []
    for node in nodes(ROOT / name):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def dotted(node: ast.expr) -> str:
    """a.b.c as it is written; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_leaves_need_numpy_and_the_standard_library_only():
    """So do the files of fedsel that they import."""
    at_hand = {*sys.stdlib_module_names, "numpy"}
    left = [name for name in NAMES if name.startswith(tuple(f"fedsel_app/{leaf}/" for leaf in LEAVES))]
    seen = set(left)
    while left:
        name = left.pop()
        others = {used for used in imports(name) if used.split(".")[0] not in at_hand}
        if name == "fedsel_app/messages/records.py":
            others -= {used for used in others if used.startswith("flwr.app")}
        assert {used.split(".")[0] for used in others} <= {"fedsel_app"}, name
        new = {module_file(used) for used in others} & {*NAMES} - seen
        seen |= new
        left += new


def test_imports_run_one_way():
    for name in sorted({*NAMES} - ENTRY_POINTS - WIRING):
        roots = {used.split(".")[0] for used in imports(name)}
        assert not roots & FORBIDDEN[name.split("/")[0]], name


def test_the_wall_stands():
    """What is bundled imports nothing of `simulation`, clients import nothing of `strategies`, and what is installed
    imports nothing of the laboratory or of the kit for tests of methods.
    """
    for name in {*NAMES} - {"fedsel_app/__init__.py"}:
        used = imports(name)
        if not name.startswith("simulation/"):
            assert not [module for module in used if module.split(".")[0] == "simulation"], name
        assert not [module for module in used if module.split(".")[0] in ("laboratory", "tests")], name
        if name in OF_CLIENTS:
            assert not [module for module in used if module.split(".")[0] == "strategies"], name


def test_the_guard_knows_a_handful_of_names_of_fedsel():
    """None of them is of the other rooms of users' tools."""
    guard = "simulation.operations.guard"
    files = [name for name in NAMES if name.startswith(f"{guard.replace('.', '/')}/")]
    used = {module for name in files for module in imports(name) if module.split(".")[0] in FORBIDDEN}
    foreign = {module for module in used if not module.startswith(guard)}
    assert len({module for module in foreign if module_file(module) not in NAMES}) <= MOST_KNOWN
    assert {module.split(".")[1] for module in foreign if module.startswith("simulation.")} <= {"engines"}


def test_the_workbench_is_above_the_other_rooms_of_simulation():
    """Only the laboratory imports it. As the rooms form no circle, commands are printed by what calls the rooms."""
    for name in {name for name in NAMES if not name.startswith("simulation/workbench/")} - ENTRY_POINTS:
        assert not [module for module in imports(name) if module.startswith("simulation.workbench")], name


def test_nothing_imports_an_entry_point():
    modules = {name.removesuffix(".py").replace("/", ".") for name in ENTRY_POINTS}
    assert [name for name in NAMES if modules & set(imports(name))] == []


def test_flowers_internals_are_named_where_the_page_of_its_releases_says():
    page = (ROOT / "docs" / "flower-versions.md").read_text(encoding="utf-8")
    places = set(re.findall(r"^\| `(\w+/[^`]+)` \|", page, re.MULTILINE))
    private = {
        name
        for name in NAMES
        if any(used.startswith(FLOWER_INTERNALS) and used != "flwr.simulation.run_simulation" for used in imports(name))
    }
    assert {next((place for place in places if name.startswith(place)), name) for name in private} == places


def room(module: str) -> str:
    """The package or file directly below a top-level folder that a dotted name lies in; empty if there is none."""
    top, *inner = module.split(".")
    found = bool(inner) and ((ROOT / top / inner[0]).is_dir() or (ROOT / top / f"{inner[0]}.py").is_file())
    return f"{top}.{inner[0]}" if found else ""


@pytest.mark.parametrize("top", ["strategies", "clients", "simulation", "fedsel_app"])
def test_the_packages_of_a_folder_form_no_circle(top):
    used: dict[str, set[str]] = {}
    for name in {name for name in NAMES if name.startswith(f"{top}/")} - ENTRY_POINTS:
        own = room(name.removesuffix(".py").replace("/", "."))
        if own:
            below = {room(module) for module in imports(name) if module.split(".")[0] == top}
            used.setdefault(own, set()).update(below - {own, ""})
    TopologicalSorter(used).prepare()


SEEDS = "fedsel_app/seeds.py"
SEEDING = {"default_rng", "SeedSequence", "get_state", "set_state", "seed"}
"""What the streams need of NumPy, and the seeding of global generators while users' code runs."""


def test_randomness_comes_from_the_seed_and_nothing_is_pickled():
    for name in NAMES:
        roots = set(imports(name)) - {SEEDS: {"random"}}.get(name, set())
        assert not roots & {"random", "numpy.random", "pickle", "cloudpickle", "dill", "joblib", "shelve"}, name
        allowed = {"Generator"} | (SEEDING if name == SEEDS else set())
        for node in nodes(ROOT / name):
            if isinstance(node, ast.Attribute) and dotted(node.value) in ("np.random", "numpy.random"):
                assert node.attr in allowed, f"{name}, line {node.lineno}: np.random.{node.attr}"
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert ast.unparse(node.value) == "False", f"{name}, line {node.lineno}"
            if isinstance(node, ast.Call) and dotted(node.func) == "np.load":
                given = {keyword.arg for keyword in node.keywords}
                assert "allow_pickle" in given, f"{name}, line {node.lineno}"


def imported(node: ast.AST) -> list[str]:
    """Modules of fedsel that a file imports when it runs, at its top or within a function."""
    modules = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            whole = [f"{child.module}.{alias.name}" for alias in child.names]
            modules += [name if module_file(name) in NAMES else child.module for name in whole]
        modules += imported(child)
    return modules


def module_file(name: str) -> str:
    return f"{name.replace('.', '/')}.py"


def test_no_files_import_each_other_in_a_circle():
    used = {name: {module_file(module) for module in imported(nodes(ROOT / name)[0])} for name in NAMES}
    TopologicalSorter({name: files & {*NAMES} - {name} for name, files in used.items()}).prepare()
