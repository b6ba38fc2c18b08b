"""Sources of the project: the root of its checkout, and its files, each parsed once."""

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Root of the checkout."""


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Nodes of a Python file's syntax tree, the module first. They stay in memory, outside of garbage collection."""
    found = tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    gc.freeze()
    return found
