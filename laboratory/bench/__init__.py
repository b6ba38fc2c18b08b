"""Benchmarks: parts of fedsel, measured beside other programs in one run."""
