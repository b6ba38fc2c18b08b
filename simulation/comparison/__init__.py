"""Comparisons: many runs on the same seeds, carried out, read back and put into statistics."""
