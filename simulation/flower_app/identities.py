"""Identities of clients that do not tell theirs: the server gives each node a number, and the node keeps it."""

from collections.abc import Collection, Mapping


def by_age(node: str) -> tuple[int, str]:
    """Sorting key of Flower's node ids, which are whole numbers as text: ascending."""
    return len(node), node


class Identities:
    """Numbers 0, 1, 2 ... of nodes, by ascending node id among those that connect together.

    A node that is gone keeps its number until a new one needs it.

    Parameters
    ----------
    numbers : node -> number, from an earlier part of the run
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)

    def update(self, connected: Collection[str]) -> None:
        """Number the nodes that have no number yet."""
        if not any(node in connected for node in self._numbers):
            self._numbers.clear()
        for node in sorted(set(connected) - self._numbers.keys(), key=by_age):
            number = self._free(connected)
            self._numbers = {other: of for other, of in self._numbers.items() if of != number} | {node: number}

    def number(self, node: str) -> int:
        """The number of a node that has been connected."""
        return self._numbers[node]

    def _free(self, connected: Collection[str]) -> int:
        """The lowest number that no node has; where the gone have the lower ones, theirs."""
        held = {number for node, number in self._numbers.items() if node in connected}
        taken = set(self._numbers.values())
        unused = [number for number in range(len(taken) + 1) if number not in taken]
        gone = sorted(taken - held)
        return min(gone + unused)
