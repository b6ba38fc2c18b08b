"""Engines: simulated runs in this process, through Flower's Ray engine."""
