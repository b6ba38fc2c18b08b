"""Runs: their wiring, simulation and deployment, comparisons, reports, benchmarks and presets."""
