"""Map of the tree: the table of packages in CONTRIBUTING.md, and the files of the folder of methods."""

import ast
import re
from pathlib import Path

from strategies import STRATEGIES
from tests.support.sources import ROOT, nodes

TOPS = ("fedsel_app", "strategies", "clients", "simulation", "laboratory")
PACKAGES = [
    path.parent
    for top in TOPS
    for path in sorted((ROOT / top).rglob("__init__.py"), key=lambda path: path.parent)
    if "tests" not in path.parts[len(ROOT.parts) :]
]


def sentence(package: Path) -> str:
    """First paragraph of the package's docstring, on one line."""
    module, *_ = nodes(package / "__init__.py")
    assert isinstance(module, ast.Module)
    docstring = ast.get_docstring(module)
    assert docstring, package
    return " ".join(docstring.split("\n\n")[0].split())


def mapped() -> dict[str, str]:
    """Folder -> purpose, of the table after the marker."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.split("<!-- map -->")[1].split("\n\n")[0]
    return dict(re.findall(r"^\| `([^`]+)/` \| (.+) \|$", table, re.MULTILINE))


def test_the_map_is_the_tree():
    rows = mapped()
    expected = {package.relative_to(ROOT).as_posix(): sentence(package) for package in PACKAGES}
    assert {folder: rows[folder] for folder in rows if folder.split("/")[0] in TOPS} == expected
    assert [folder for folder in rows if not (ROOT / folder).is_dir()] == []


def test_the_methods_folder_holds_one_module_for_each_method_and_nothing_else():
    assert [method.name for method in STRATEGIES.values()] == list(STRATEGIES)
    modules = [method.__module__ for method in STRATEGIES.values()]
    files = {path.stem for path in (ROOT / "strategies" / "methods").glob("*.py")} - {"__init__"}
    assert sorted(modules) == sorted(f"strategies.methods.{name}" for name in files)
