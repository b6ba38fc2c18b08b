"""Experiments: the resolved configuration of a run, and the presets, one for each table of the papers."""
