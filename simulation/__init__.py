"""Runs: the engines that carry them out, deployment, comparisons, reports, benchmarks and presets."""
