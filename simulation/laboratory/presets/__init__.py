"""Presets of the laboratory: small versions of papers' experiments, and comparisons with other benchmarks."""
