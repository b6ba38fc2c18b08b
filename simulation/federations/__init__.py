"""Federations: the clients of a run in this process, or behind Flower's grid, in simulation and deployment alike."""
