"""Imports run one way, randomness has one source, nothing is pickled, files stay small."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path for top in ("fedsel_app", "strategies", "clients", "simulation") for path in (ROOT / top).rglob("*.py")
)
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
PURE = {f"fedsel_app/{name}.py" for name in ("config", "seeds", "partition", "label_skew", "clock")}
PURE |= {name for name in TREES if name.startswith("fedsel_app/wire")}
WIRING = {f"fedsel_app/{name}.py" for name in ("app_config", "server_app", "client_app", "cli")}
FORBIDDEN = {
    "strategies": {"clients", "simulation", "torch"},
    "clients": {"strategies", "simulation"},
    "fedsel_app": {"strategies", "clients", "simulation"},
    "simulation": set[str](),
}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", [*sorted(PURE), "simulation/network.py"])
def test_leaves_need_numpy_and_the_standard_library_only(name):
    own = tuple(path.removesuffix(".py").replace("/", ".") for path in PURE)
    foreign = {used for used in imports(TREES[name]) if used.split(".")[0] not in {*sys.stdlib_module_names, "numpy"}}
    assert not {used for used in foreign if used != "fedsel_app" and not used.startswith(own)}


@pytest.mark.parametrize("name", TREES)
def test_imports_run_one_way(name):
    roots = {used.split(".")[0] for used in imports(TREES[name])}
    assert name in WIRING or not roots & FORBIDDEN[name.split("/")[0]]


@pytest.mark.parametrize("name", TREES)
def test_randomness_comes_from_the_seed_and_nothing_is_pickled(name):
    roots = set(imports(TREES[name]))
    assert not roots & {"random", "numpy.random", "pickle", "cloudpickle", "dill", "joblib", "shelve"}
    allowed = {"Generator"} | ({"default_rng", "SeedSequence"} if name == "fedsel_app/seeds.py" else set())
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("np.random", "numpy.random"):
            assert node.attr in allowed, f"line {node.lineno}: np.random.{node.attr}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert ast.unparse(node.value) == "False"
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.load":
            assert "allow_pickle" in {keyword.arg for keyword in node.keywords}, f"line {node.lineno}"


def test_no_file_has_more_than_300_lines():
    assert [path for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 300] == []
