"""Flower's states and identity of a task, in the releases from 1.36 on. It needs nothing of `simulation`."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

import pytest

RELEASE = tuple(map(int, version("flwr").split(".")[:2]))


def messages_at_node(state: Any, *, is_reply: bool) -> Any:
    """Messages of a SuperNode that it has not delivered yet."""
    return getattr(state, "get_messages_legacy", state.get_messages)(is_reply=is_reply)


def of_run(run_id: int) -> dict[str, int]:
    """The run of the replies, in releases in which a SuperLink needs it."""
    return {"run_id": run_id} if RELEASE >= (1, 41) else {}


def become_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process the identity of a task. From release 1.41 on, Flower takes a message's sender from it."""
    if RELEASE >= (1, 41):
        identity = import_module("flwr.supercore.task_identity").TaskIdentity
        for name in ("_task_id", "_run_id", "_node_id"):
            monkeypatch.setattr(identity, name, 1)


@pytest.fixture
def task_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Identity of this process as a task, for one test."""
    become_task(monkeypatch)
