"""Experiments: a run's resolved configuration, and the presets, one for each table of the papers."""
