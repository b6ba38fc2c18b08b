"""Simulated links, and the launchers: Ray simulation, deployment, presets and pictures."""
