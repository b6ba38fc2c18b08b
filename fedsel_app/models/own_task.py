"""A task of a user: a class that has what `fedsel_app.models.tasks.Task` has. See `task_trial`."""

from typing import TYPE_CHECKING, cast

from fedsel_app.config import ConfigError, plugins

if TYPE_CHECKING:
    from fedsel_app.models.tasks import Task

FUNCTIONS = ("loss", "losses", "tally", "scores")


def own_task(path: str, outputs: int) -> "Task":
    """Build the task `path` ("package.module:Class"), for a model with this number of outputs.

    Raises ConfigError if the class cannot be imported or built, or lacks a function or the name of its score.
    """
    task = plugins.call(path, "task", outputs)
    if missing := [name for name in FUNCTIONS if not callable(getattr(task, name, None))]:
        raise refusal(path, f"needs the function {missing[0]}")
    if not isinstance(getattr(task, "score", None), str) or not task.score.isidentifier():
        raise refusal(path, 'needs the name of its score, such as score = "accuracy": letters, digits and _')
    return cast("Task", task)


def refusal(path: str, reason: str) -> ConfigError:
    """Error of the user's class `path` for this reason."""
    return ConfigError(f"The class '{path}' ('task') {reason}.")
