"""Five clients whose updates are points in the plane: a cluster of three and one of two."""

import numpy as np

from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, outcome

POINTS = np.array([(0, 0), (1, 0), (0, 1), (5, 5), (6, 5)], float)


def distances_of(points):
    """Distance between each two points."""
    return np.array([[np.hypot(a[0] - b[0], a[1] - b[1]) for b in points] for a in points])


def points_outcome(number=1, clients=range(5), failed=()):
    """Outcome of a round in which these clients sent their points as updates."""
    updates = [dense(POINTS[client]) for client in clients]
    return outcome(RoundInfo(number, 10), clients, updates, failed=failed)
