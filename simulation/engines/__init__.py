"""Engines: checks before a run, the choice of an engine, and runs in this process or through Flower's Ray engine."""
