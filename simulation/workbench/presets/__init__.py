"""Presets for one machine: small versions of papers' experiments, and comparisons with other benchmarks."""
