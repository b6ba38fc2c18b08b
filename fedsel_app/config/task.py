"""Settings of the task that a data set is learnt for."""

from dataclasses import dataclass

from fedsel_app.config.settings import Settings, setting


@dataclass(frozen=True)
class TaskConfig(Settings):
    """Task: the loss of a data set with several labels an example."""

    positive_weights: str = setting(
        "all",
        "multi-label: a positive counts negatives / positives times in the loss; both of all training examples, or in "
        "local training of the client's own",
        choices=("all", "client"),
    )
