"""Engines: what carries out a run, Flower's Ray engine in this process."""
