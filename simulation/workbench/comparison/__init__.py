"""Comparisons: carry out many runs on the same seeds, read their results, and compute statistics."""
