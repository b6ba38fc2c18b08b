"""Tuning: the same number of Optuna's trials for every method, and the default settings compared with the best."""
