"""Wiring: builds a run's server and clients from its settings, and checks beforehand that it can run."""
