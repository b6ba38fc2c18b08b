"""Tuning: the same number of trials for every method, then a comparison of the default and the best settings."""
