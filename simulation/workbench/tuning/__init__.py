"""Tuning: the same number of Optuna trials for every method, then a comparison of the default and the best settings."""
