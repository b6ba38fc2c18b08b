"""Average linkage of many clients: equal to SciPy's merge table, bit for bit.

With 10,000 clients it takes less than half of SciPy's time, and less memory.

Both follow nearest-neighbour chains (D. Muellner, "Modern hierarchical, agglomerative clustering algorithms",
arXiv:1109.2378, 2011, algorithm NN-CHAIN, with its rule for ties). SciPy stores a triangle of the distances, in which
half of every row is scattered. Here each row is contiguous. A merge writes only the row of the new group. Another row
is updated when it is read again. When half of the groups have merged, the array is packed.
"""

import numpy as np

from strategies.roster import Floats


class Groups:
    """The remaining groups and their distances. It overwrites the square array of distances."""

    def __init__(self, distances: Floats) -> None:
        self._distances = distances
        np.fill_diagonal(distances, np.inf)
        clients = len(distances)
        self.left = clients
        self._names = np.arange(clients)
        """As in SciPy, the place of a group is that of its last client."""
        self._sizes = np.ones(clients)
        self._gone = np.zeros(clients)
        """0, or infinity for a group that has been merged."""
        self._changed = np.zeros(clients, np.int64)
        self._current = np.zeros(clients, np.int64)
        """Number of merges after which a group was formed, and after which its row was last updated."""
        self._merges = 0
        self._chain: list[int] = []

    def merge(self) -> tuple[int, int, float]:
        """Merge two groups that are each other's nearest neighbours; return their names and their distance."""
        if 2 * self.left <= len(self._names):
            self._pack()
        one, other, distance = self._nearest()
        one, other = min(one, other), max(one, other)
        names = int(self._names[one]), int(self._names[other])
        row, size, added = self._distances[other], self._sizes[other], self._sizes[one]
        row *= size
        row += added * self._distances[one]
        row /= size + added
        row[other] = np.inf
        self._sizes[other] += added
        self._gone[one], self._changed[one] = np.inf, 0
        self._merges += 1
        self._changed[other] = self._current[other] = self._merges
        self.left -= 1
        return *names, distance

    def _nearest(self) -> tuple[int, int, float]:
        """Follow the chain of nearest neighbours to its end, and remove its last two groups."""
        chain = self._chain
        if not chain:
            chain.append(int(self._gone.argmin()))
        while True:
            distances = self._row(chain[-1]) + self._gone
            nearest = int(distances.argmin())
            if len(chain) > 1 and distances[chain[-2]] <= distances[nearest]:
                one, other = chain.pop(), chain.pop()
                self._row(other)
                return one, other, float(distances[other])
            chain.append(nearest)

    def _row(self, group: int) -> Floats:
        """The current distances to `group`. Entries of groups that have been merged are meaningless."""
        row: Floats = self._distances[group]
        late = np.flatnonzero(self._changed > self._current[group])
        if late.size:
            row[late] = self._distances[late, group]
        self._current[group] = self._merges
        return row

    def _pack(self) -> None:
        """Remove the groups that have been merged."""
        kept = np.flatnonzero(self._gone == 0)
        packed = np.empty((kept.size, kept.size))
        for row, group in zip(packed, kept.tolist(), strict=True):
            row[:] = self._row(group)[kept]
        self._distances = packed
        self._names, self._sizes, self._gone = self._names[kept], self._sizes[kept], self._gone[kept]
        self._changed, self._current = self._changed[kept], self._current[kept]
        self._chain = np.searchsorted(kept, self._chain).tolist()


def average_linkage(distances: Floats) -> Floats:
    """SciPy's `linkage(squareform(distances), "average")`, float64 (n - 1, 4). Overwrites `distances` (n, n).

    Raises ValueError if a distance is not finite.
    """
    if not np.isfinite(distances.sum()):
        raise ValueError("The distances between clients must be finite.")
    clients = len(distances)
    groups = Groups(distances)
    merges = np.array([groups.merge() for _ in range(clients - 1)])
    return _labelled(merges[np.argsort(merges[:, 2], kind="stable")], clients)


def _labelled(merges: Floats, clients: int) -> Floats:
    """Merges of named groups (n - 1, 3), by ascending distance, as SciPy's table: merge i forms group n + i."""
    parent, sizes = list(range(2 * clients - 1)), [1] * clients
    table = np.empty((clients - 1, 4))

    def root(name: int) -> int:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for new, (one, other, distance) in enumerate(merges.tolist(), start=clients):
        low, high = sorted((root(int(one)), root(int(other))))
        parent[low] = parent[high] = new
        sizes.append(sizes[low] + sizes[high])
        table[new - clients] = low, high, distance, sizes[new]
    return table
