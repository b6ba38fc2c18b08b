"""Identities of clients that do not tell theirs: the server numbers the nodes."""

from collections.abc import Collection, Mapping


class Identities:
    """Numbers 0, 1, 2 ... of nodes, by ascending node id among those that connect together.

    A node that is gone keeps its number until a new node needs it.

    Parameters
    ----------
    numbers : node -> number, from an earlier part of the run
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)

    def update(self, connected: Collection[str]) -> None:
        """Give each node without a number the lowest one that no connected node has."""
        if self._numbers.keys().isdisjoint(connected):
            self._numbers.clear()
        for node in sorted(set(connected) - self._numbers.keys(), key=int):
            held = {number for other, number in self._numbers.items() if other in connected}
            free = min(set(range(len(held) + 1)) - held)
            self._numbers = {other: number for other, number in self._numbers.items() if number != free}
            self._numbers[node] = free

    def number(self, node: str) -> int:
        """Number of a node that has been connected."""
        return self._numbers[node]
