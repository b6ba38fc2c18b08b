"""Benchmarks: `fedsel bench`, ratios measured within one run."""
