"""Data sources: one file for each place that samples come from."""
