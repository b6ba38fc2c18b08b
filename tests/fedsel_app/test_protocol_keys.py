"""Protocol: no other package names a key of the messages between server and clients."""

import ast
from dataclasses import fields, is_dataclass

import pytest

from fedsel_app.messages import answers, instructions, user_apps
from fedsel_app.messages.instructions import TASK
from fedsel_app.messages.scalars import Report
from tests.support.sources import ROOT, nodes

KINDS = {kind for module in (answers, instructions, user_apps) for kind in vars(module).values() if is_dataclass(kind)}
KEYS = {TASK, *Report} | {field.name for kind in KINDS for field in fields(kind)}
SHARED = {"accuracy", "client", "clients", "examples", "kept_fraction", "loss", "reports"}
"""Keys that are also entries of records, parts of scores or settings' choices."""
FILES = [path for top in ("clients", "strategies", "fedsel_app/network") for path in (ROOT / top).rglob("*.py")]
FILES.append(ROOT / "simulation/deployment/supernode.py")
FLOWER_MESSAGES = {f"{kind}{way}" for kind in ("GetProperties", "Fit", "Evaluate") for way in ("Ins", "Res")}
FLOWER_DICTS = {"config", "metrics", "properties"}


def last_name(node):
    """c of a.b.c; empty where it is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def named_keys(nodes):
    """Lines in which code names a key of the protocol, as a literal of its own or in a dict that Flower carries."""
    for node in nodes:
        if isinstance(node, ast.Constant) and node.value in KEYS - SHARED:
            yield node.lineno
        if isinstance(node, ast.Subscript) and last_name(node.value) in FLOWER_DICTS:
            yield from (node.lineno for _ in texts(node.slice))
        if isinstance(node, ast.Compare) and any(last_name(part) in FLOWER_DICTS for part in node.comparators):
            yield from (node.lineno for _ in texts(node.left))
        if isinstance(node, ast.Call) and last_name(getattr(node.func, "value", None)) in FLOWER_DICTS:
            yield from (node.lineno for argument in node.args[:1] for _ in texts(argument))
        if isinstance(node, ast.Call) and last_name(node.func) in FLOWER_MESSAGES:
            yield from (inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.Dict) and inner.keys)
        if isinstance(node, ast.FunctionDef) and {"Config", "Evaluation", "Scalar"} & returned_names(node):
            yield from (inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.Dict) and inner.keys)


def returned_names(function):
    """Names in the annotation of what a function returns."""
    return {last_name(part) for part in ast.walk(function.returns)} if function.returns else set()


def texts(node):
    return [node] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


@pytest.mark.parametrize(
    "source",
    [
        "x = row['last_aggregated']",
        "NAME = 'work_steps'",
        "config['loss']",
        "ins.config['client']",
        "reply.metrics.get('accuracy', 0.0)",
        "'loss' in answer.metrics",
        "answer.properties.pop('examples')",
        "FitIns(parameters, {'client': 1})",
        "EvaluateRes(status, 0.5, 1, metrics={'accuracy': 0.5})",
        "def fit(self) -> tuple[int, Config]:\n    return 1, {'client': 2}",
        "def evaluate(self) -> dict[str, Scalar]:\n    return {'loss': 2}",
        "def evaluate(self) -> Evaluation:\n    return 0.5, 1, {'loss': 2}",
    ],
)
def test_a_named_key_is_found(source):
    assert list(named_keys(ast.walk(ast.parse(source))))


@pytest.mark.parametrize(
    "source", ["self._row['loss'] = 1.0", "failures.append({'client': 1})", "FitIns(sent, instruction.to_config())"]
)
def test_entries_of_records_are_no_keys_of_the_protocol(source):
    assert not list(named_keys(ast.walk(ast.parse(source))))


def test_no_key_of_the_protocol_is_named_outside_the_messages():
    assert len(KINDS) == 11
    found = [(path.relative_to(ROOT).as_posix(), line) for path in FILES for line in named_keys(nodes(path))]
    assert found == []
