"""Leaks: what in a data set may make a test score too good, as sentences that also say what to write."""

from collections.abc import Sequence

from fedsel_app.data.dataset import Dataset

MOST_SHOWN = 10
"""Categories, classes and owners that are listed; of more, the first."""


def leaks(dataset: Dataset) -> list[str]:
    """Sentences on what may make a test score too good."""
    leaks = [
        f"Column '{column}' has another text or whole number in each row, or numbers above 2^53, as identifiers are: "
        'leave it out, with input=["NAME"] for the others.'
        for column in (dataset.table.running if dataset.table else ())
    ]
    seen = {row.tobytes() for row in dataset.x_train}
    if repeated := sum(row.tobytes() in seen for row in dataset.x_test):
        leaks.append(
            f"Test rows that are training rows: {repeated:,} of {len(dataset.x_test):,}. Remove repeated rows."
        )
    if shared := dataset.shared_owners:
        leaks.append(
            f"Owners with rows in the training part and in the test part: {len(shared):,} ({listed(shared)}). With "
            "split=\"owner\" in 'data-arguments', the test part has owners of its own."
        )
    return leaks


def listed(names: Sequence[str]) -> str:
    """The names, or the first of many."""
    return ", ".join(names[:MOST_SHOWN]) + ", ..." * (len(names) > MOST_SHOWN)
